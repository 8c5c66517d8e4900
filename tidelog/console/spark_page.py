"""Streaming queries of Spark that read from this cluster, by what they commit as they run."""

from __future__ import annotations

from tidelog.client.group_metadata import CommittedOffset
from tidelog.client.query_notes import TRANSACTIONAL_ID_PREFIX, parse_note
from tidelog.console.html import Content, address, element, link, table
from tidelog.console.page_call import PageCall, Shown
from tidelog.errors import TidelogError

QUERIES_SHOWN_MAX = 100
"""Each is two requests to its coordinator."""


async def spark(call: PageCall) -> Shown:
    """The queries, with their progress and their lag."""
    # A query commits its progress under a transactional id of its own (tidelog/client/query_notes.py).
    listed = await call.admin.list_transactions(pattern=f"{TRANSACTIONAL_ID_PREFIX}.*", on_missing=lambda _error: None)
    ids = [each.transactional_id.removeprefix(TRANSACTIONAL_ID_PREFIX) for each in listed]
    return Shown(
        "Spark",
        [
            element(
                "p",
                "Streaming queries that read topics of this cluster and commit their progress. A query that runs and "
                "reads new records has made progress seconds ago; one whose topics are quiet, or that has stopped, has "
                "not.",
            ),
            table(
                f"{len(ids)} streaming queries",
                ("Group", "Last progress", "Partitions", "Lag"),
                [await _row(call, group_id) for group_id in ids[:QUERIES_SHOWN_MAX]],
                empty="There is no such query that you may see.",
            ),
            element("p", f"{len(ids) - QUERIES_SHOWN_MAX} queries are not shown; the page Groups has them.")
            if len(ids) > QUERIES_SHOWN_MAX
            else None,
        ],
    )


async def _row(call: PageCall, group_id: str) -> tuple[Content, ...]:
    name = link(address("/group", id=group_id), group_id)
    try:
        committed = await call.admin.list_group_offsets(group_id)
        lag = await call.admin.group_lag(group_id)
    except TidelogError as error:
        return name, error.message, "-", "-"
    known = [each.lag for each in lag]
    total = sum(each for each in known if each is not None)
    return (
        name,
        _progress(call, [each for each in committed.values() if each is not None]),
        len(committed),
        f"{total} and unknown" if None in known else total,
    )


def _progress(call: PageCall, committed: list[CommittedOffset]) -> str:
    notes = [note for each in committed if (note := parse_note(each.metadata)) is not None]
    made = [note.at for note in notes if note.kind == "progress"]
    return f"{call.ago(max(made))} ago" if made else "none yet: it has chosen where to begin" if notes else "unknown"
