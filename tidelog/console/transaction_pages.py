"""Transactions: the transactional ids with their states, and one with its partitions."""

from __future__ import annotations

from tidelog.client.transaction_admin import TransactionListing
from tidelog.console.cluster_page import partition_link
from tidelog.console.html import Content, address, choice, element, facts, items, link, table
from tidelog.console.layout import ROWS_SHOWN_MAX, alarm, not_shown, search
from tidelog.console.page_call import PageCall, Shown, shown_time
from tidelog.errors import TidelogError

STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")


async def transactions(call: PageCall) -> Shown:
    """All transactional ids, those first whose transaction has been open for longest."""
    state = call.request.text("state")
    missing: list[TidelogError] = []
    listed = await call.admin.list_transactions(states=[state] if state else [], on_missing=missing.append)
    # An open transaction keeps readers with read_committed from all that is behind it: the oldest matters most.
    every = sorted(listed, key=lambda each: (each.start_ms < 0, each.start_ms, each.transactional_id))
    options = [("", "any"), *((each, each) for each in STATES)]
    return Shown(
        "Transactions",
        [
            search("/transactions", choice("State", "state", options, state), button="Filter"),
            *[alarm(element("p", each.message)) for each in missing],
            table(
                f"{len(every)} transactional ids",
                ("Transactional id", "State", "Open for", "Producer id", "Coordinator"),
                [_row(call, each) for each in every[:ROWS_SHOWN_MAX]],
                empty="There is no such transactional id that you may see.",
            ),
            not_shown(len(every), "The state narrows them down."),
        ],
    )


def _row(call: PageCall, each: TransactionListing) -> tuple[Content, ...]:
    return (
        link(address("/transaction", id=each.transactional_id), each.transactional_id),
        each.state,
        "" if each.start_ms < 0 else call.ago(each.start_ms),
        int(each.producer_id),
        f"node {each.coordinator}",
    )


async def transaction(call: PageCall) -> Shown:
    """One transactional id."""
    name = call.identity("id")
    found = (await call.admin.describe_transactions([name]))[name]
    if isinstance(found, TidelogError):
        raise found
    began = "none is open" if found.start_ms < 0 else f"{shown_time(found.start_ms)}, {call.ago(found.start_ms)} ago"
    return Shown(
        f"Transactional id {name}",
        [
            facts(
                (
                    ("State", found.state),
                    ("Open since", began),
                    ("Times out after", f"{found.transaction_timeout_ms} ms"),
                    ("Producer id and epoch", f"{found.producer_id}, {found.producer_epoch}"),
                    ("Coordinator", f"node {found.coordinator}"),
                )
            ),
            element("h2", f"{len(found.partitions)} partitions in the transaction"),
            items(partition_link(each) for each in found.partitions[:ROWS_SHOWN_MAX]),
            not_shown(len(found.partitions)),
        ],
    )
