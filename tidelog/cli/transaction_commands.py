"""`tidelog txn list|describe|find-hanging|abort`, and the texts of `tidelog partition who-holds-lso` (KIP-664)."""

from __future__ import annotations

from typing import Annotated

import click

from tidelog.cli.argument_values import WrongUsage, partition_of
from tidelog.cli.cluster_command import CommandCall, cluster_command
from tidelog.cli.declared import Argument, CommandGroup, Option
from tidelog.cli.output import counted, ensure_complete, print_json, print_table
from tidelog.client.admin import Admin
from tidelog.client.transaction_admin import OpenTransaction, TransactionDescription
from tidelog.clock import MachineClock
from tidelog.errors import TidelogError
from tidelog.printable import shell_word
from tidelog.standard_streams import say

app = CommandGroup()
MAX_TIMEOUT_HELP = "How long a transaction must have had no write; default: the nodes' transaction.max.timeout.ms."


@cluster_command(app, "list")
def list_transactions(
    call: CommandCall,
    state: Annotated[
        list[str] | None, Option("--state", help="Only in this state, for example Ongoing; repeatable.")
    ] = None,
    producer_id: Annotated[list[int] | None, Option("--producer-id", help="Only of this producer id.")] = None,
    open_for_ms: Annotated[
        int | None, Option("--open-for-ms", min=0, help="Only transactions that are open for at least this time.")
    ] = None,
    pattern: Annotated[
        str, Option("--pattern", help="Only ids that match this regular expression (RE2) as a whole.")
    ] = "",
) -> None:
    """List the transactional ids of all coordinators. Exit code 1: those of a coordinator are missing."""
    missing: list[TidelogError] = []
    found = call.query(
        lambda admin: admin.list_transactions(
            states=state or (),
            producer_ids=producer_id or (),
            duration_ms_min=-1 if open_for_ms is None else open_for_ms,
            pattern=pattern,
            on_missing=missing.append,
        )
    )
    rows = [
        (each.transactional_id, each.coordinator, each.producer_id, each.state, _open_for(each.start_ms))
        for each in found
    ]
    columns = ("transactional id", "coordinator", "producer id", "state", "open for")
    call.show(found, counted(len(found), "transactional id"), columns, rows)
    ensure_complete(missing)


@cluster_command(app)
def describe(
    call: CommandCall,
    transactional_ids: Annotated[list[str], Argument(help="Transactional ids.")],
) -> None:
    """Show producer, state and partitions of transactional ids. Exit code 1: one is not known."""
    found = call.query(lambda admin: admin.describe_transactions(transactional_ids))
    known = [each for each in found.values() if isinstance(each, TransactionDescription)]
    failures = {name: each for name, each in found.items() if isinstance(each, TidelogError)}
    if call.as_json:
        errors = [
            {"transactional_id": name, "error": {"name": type(error).__name__, "message": error.message}}
            for name, error in failures.items()
        ]
        print_json([*known, *errors])
    else:
        for error in failures.values():
            say(f"tidelog: {error.message}")
        rows = [
            (
                each.transactional_id,
                each.coordinator,
                each.producer_id,
                each.producer_epoch,
                each.state,
                duration(each.transaction_timeout_ms),
                _open_for(each.start_ms),
                tuple(str(partition) for partition in each.partitions),
            )
            for each in known
        ]
        producer = ("transactional id", "coordinator", "producer id", "epoch")
        columns = (*producer, "state", "timeout", "open for", "partitions")
        print_table(counted(len(known), "transactional id"), columns, rows)
    if failures:
        raise click.exceptions.Exit(1)


@cluster_command(app, "find-hanging")
def find_hanging(
    call: CommandCall,
    topic: Annotated[list[str] | None, Option("--topic", help="Only in this topic; repeatable.")] = None,
    max_timeout_ms: Annotated[int | None, Option("--max-timeout-ms", min=0, help=MAX_TIMEOUT_HELP)] = None,
) -> None:
    """Find transactions that are open in a partition but unknown to their coordinator: read_committed consumers wait
    for them for ever. Exit code 1: there are some."""
    found = call.query(lambda admin: admin.find_hanging_transactions(topic or None, max_timeout_ms=max_timeout_ms))
    if call.as_json:
        print_json(found)
    elif not found:
        say("no transaction hangs in the topics that you may describe")
    else:
        rows = [
            (
                str(each.partition),
                each.start_offset,
                each.producer_id,
                each.producer_epoch,
                _ago(each.last_write_ms),
                abort_command(each),
            )
            for each in found
        ]
        columns = ("partition", "first offset", "producer id", "epoch", "last write", "command that ends it")
        print_table(counted(len(found), "hanging transaction"), columns, rows)
    if found:
        raise click.exceptions.Exit(1)


@cluster_command(app)
def abort(
    call: CommandCall,
    transactional_id: Annotated[str | None, Argument(help="Transactional id whose open transaction to abort.")] = None,
    partition: Annotated[
        str | None, Option("--partition", help="Partition of a hanging transaction, as TOPIC-N.")
    ] = None,
    start_offset: Annotated[
        int | None, Option("--start-offset", help="First offset of the hanging transaction.")
    ] = None,
) -> None:
    """Abort the open transaction of a transactional id, and fence its producer: the application has to start it again.

    With --partition and --start-offset: abort a hanging transaction in its partition (see find-hanging).
    """
    if transactional_id is not None and partition is None and start_offset is None:
        name = transactional_id
        before = call.query(lambda admin: admin.abort_transaction(name))
        what = "its open transaction is aborted" if before.start_ms >= 0 else "it had no open transaction"
        call.report(
            {"transactional_id": name, "producer_id": before.producer_id, "was_open": before.start_ms >= 0},
            f"transactional id {name!r}: {what}, its producer {before.producer_id} is fenced",
        )
    elif transactional_id is None and partition is not None and start_offset is not None:
        key, offset = partition_of(partition), start_offset
        producer = call.query(lambda admin: admin.abort_hanging_transaction(key, offset))
        call.report(
            {"partition": str(key), "start_offset": offset, "producer_id": producer.producer_id},
            f"{key}: the transaction of producer {producer.producer_id} since offset {offset} is aborted",
        )
    else:
        raise WrongUsage("give a transactional id, or --partition and --start-offset of a hanging transaction")


def who_holds_lso(call: CommandCall, name: str) -> None:
    """Print which transaction read_committed consumers of a partition wait for."""
    key = partition_of(name)

    async def ask(admin: Admin) -> tuple[int, int, list[OpenTransaction], int]:
        found = await admin.open_transactions([key])
        stable = (await admin.describe_producers([key]))[key].last_stable_offset
        max_timeout_ms = await admin.transaction_max_timeout_ms() if any(each.is_hanging for each in found) else 0
        return stable, (await admin.list_offsets([key]))[key], found, max_timeout_ms

    stable, end, found, max_timeout_ms = call.query(ask)
    if call.as_json:
        print_json({"partition": str(key), "last_stable_offset": stable, "end_offset": end, "transactions": found})
        return
    if not found:
        say(f"{key}: no transaction is open; the last stable offset is {stable}, the end is {end}")
        return
    waiting = counted(max(0, end - stable), "offset")
    say(f"{key}: the last stable offset is {stable}, {waiting} before the end {end}")
    for each in found:
        for line in _explanation(each, max_timeout_ms):
            say(line)


def _explanation(transaction: OpenTransaction, max_timeout_ms: int) -> list[str]:
    """The owner of the transaction, and what to do. max_timeout_ms: transaction.max.timeout.ms of the nodes."""
    since = (
        f"since offset {transaction.start_offset}: producer {transaction.producer_id} in epoch "
        f"{transaction.producer_epoch}"
    )
    written = f"last write {_ago(transaction.last_write_ms)}"
    described = transaction.description
    if transaction.is_hanging:
        why = (
            "no coordinator knows this producer id"
            if described is None
            else f"transactional id {described.transactional_id!r} (coordinator: node {described.coordinator}, state "
            f"{described.state}) does not have this partition in its transaction"
        )
        limit = f"{duration(max_timeout_ms)} (transaction.max.timeout.ms)"
        return [
            f"  {since}, {written}; {why}: it hangs",
            f"  do:  if there is no write for {limit}: {abort_command(transaction)}",
        ]
    assert described is not None, "a transaction without description hangs"
    whose = f"transactional id {described.transactional_id!r}, coordinator: node {described.coordinator}"
    limit = f"its timeout of {duration(described.transaction_timeout_ms)}"
    return [
        f"  {since}, {described.state} for {_open_for(described.start_ms)}, {written}; {whose}",
        f"  do:  {limit} ends it; at once, which fences its producer: {abort_command(transaction)}",
    ]


def abort_command(transaction: OpenTransaction) -> str:
    """The command that ends the transaction."""
    if transaction.is_hanging or transaction.description is None:
        return f"tidelog txn abort --partition {transaction.partition} --start-offset {transaction.start_offset}"
    return f"tidelog txn abort {shell_word(transaction.description.transactional_id)}"


def duration(ms: int) -> str:
    """Return a time for people: 850 ms, 12 s, 3 min, 2 h."""
    for size, unit in ((3_600_000, "h"), (60_000, "min"), (1_000, "s")):
        if ms >= 2 * size or (ms >= size and ms % size == 0):
            return f"{ms // size} {unit}"
    return f"{ms} ms"


def _open_for(start_ms: int) -> str:
    return "" if start_ms < 0 else duration(max(0, MachineClock().wall_ms() - start_ms))


def _ago(at_ms: int) -> str:
    return "unknown" if at_ms < 0 else f"{duration(max(0, MachineClock().wall_ms() - at_ms))} ago"
