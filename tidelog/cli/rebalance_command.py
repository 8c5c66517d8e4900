"""`tidelog cluster rebalance`: moves replicas so that nodes have equally many and their log directories equally many
bytes, or so that a node, or a log directory, has none."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import click

from tidelog.balancing.cluster_balance import (
    ClusterBalance,
    MoveProgress,
    cancel_moves,
    execute_moves,
    expected_ms,
    look_at_balance,
    look_at_queue,
    queue_moves,
)
from tidelog.balancing.log_dir_moves import begin_log_dir_moves, execute_log_dir_moves
from tidelog.balancing.move_planner import ReplicaMove
from tidelog.balancing.reassignment_file import parse_log_dirs, parse_reassignment, reassignment_document
from tidelog.cli.argument_values import WrongUsage
from tidelog.cli.cluster_command import CommandCall, administrator
from tidelog.cli.declared import Option
from tidelog.cli.output import counted, plain, print_json, print_table, printed_warnings
from tidelog.client.admin import Admin
from tidelog.clock import MachineClock
from tidelog.cluster_descriptions import PartitionResult
from tidelog.errors import TooFewNodes
from tidelog.standard_streams import say
from tidelog.types import NodeId, TopicPartition

_REPORT_MS = 10_000
_WAITING_MS = 60_000
_NAMED_MAX = 5
_NODE_COLUMNS = ("replicas", "leaders", "bytes", "load")
_DIRECTORY_COLUMNS = ("replicas", "bytes")

AssumedRate = Annotated[
    int, Option("--assumed-rate", min=1, help="Bytes per second that a node fetches, for the expected duration.")
]


def rebalance(
    call: CommandCall,
    drain: Annotated[
        list[int] | None,
        Option("--drain", help="Move every replica away from this node, and nothing else; repeatable."),
    ] = None,
    log_dir: Annotated[
        list[str] | None,
        Option("--log-dir", help="With one --drain: only what is in this log directory of the node; repeatable."),
    ] = None,
    partial: Annotated[
        bool, Option("--partial", help="With --drain: move what another node can take, though the rest stays.")
    ] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Show the plan, change nothing.")] = False,
    plan_file: Annotated[
        Path | None, Option("--plan-file", help="Execute this plan instead: Kafka's reassignment JSON.")
    ] = None,
    save_plan: Annotated[Path | None, Option("--save-plan", help="Write the plan to this file first.")] = None,
    no_wait: Annotated[bool, Option("--no-wait", help="Return once the moves are queued.")] = False,
    status: Annotated[
        bool, Option("--status", help="Show what is queued and in progress, and change nothing.")
    ] = False,
    cancel: Annotated[
        bool, Option("--cancel", help="Cancel every queued move and every reassignment in progress.")
    ] = False,
    assumed_rate: AssumedRate = 50_000_000,
) -> None:
    """Move replicas between nodes until all have equally many, over all racks, and lead equally many partitions; then
    between the log directories of nodes until these have about equally many bytes. The controller begins the moves
    between nodes one after the other. Waits until all have moved; after Ctrl-C they go on, and the same command waits
    again. Exit code 1: a move was refused or cancelled, or a partition stays on a drained node."""
    if sum((status, cancel, bool(plan_file or drain or save_plan or dry_run or no_wait))) > 1:
        raise WrongUsage("pass --status or --cancel alone")
    if status or cancel:
        asyncio.run(_cancel(call) if cancel else _show_status(call))
        return
    if plan_file is not None and (drain or save_plan):
        raise WrongUsage("--plan-file is executed as it is: leave out --drain and --save-plan")
    if partial and not drain:
        raise WrongUsage("--partial is for --drain: nothing else needs that every replica finds another node")
    if log_dir and len(drain or ()) != 1:
        raise WrongUsage("--log-dir is for --drain N: pass one node, whose log directory it is")
    dirs = [each.rstrip("/") or "/" for each in log_dir or ()]
    with printed_warnings():
        asyncio.run(_rebalance(call, drain or [], dirs, partial, dry_run, plan_file, save_plan, no_wait, assumed_rate))


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is to be done."""

    moves: list[ReplicaMove]
    begun: list[ReplicaMove]
    """Queued or in progress; they belong to the same task."""
    placed: Mapping[NodeId, Mapping[TopicPartition, str]]
    """The log directories to which replicas move within their nodes."""
    staying: Mapping[TopicPartition, str] = field(default_factory=dict)
    """Partitions that no other node can take, with the reason."""


async def _rebalance(
    call: CommandCall,
    drain: Sequence[int],
    log_dirs: Sequence[str],
    partial: bool,
    dry_run: bool,
    plan_file: Path | None,
    save_plan: Path | None,
    no_wait: bool,
    assumed_rate: int,
) -> None:
    async with administrator(call.connection) as admin:
        balance = await look_at_balance(admin)
        plan = _planned(balance, drain, log_dirs, partial, plan_file)
        for log_dir in balance.open_dirs(drain, log_dirs):
            say(
                f"warning: {log_dir} of node {drain[0]} is not cordoned and may get new replicas meanwhile: "
                f"`tidelog node cordon {drain[0]} --log-dir {log_dir}`"
            )
        say_what_is_missing(balance if plan_file is None else replace(balance, hidden=()))
        if save_plan is not None:
            document = reassignment_document(plan.moves, plan.placed, balance.partitions)
            save_plan.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        duration_ms = await expected_ms(admin, plan.moves, assumed_rate)
        if dry_run:
            show_plan(call, balance, plan.moves, duration_ms, plan.begun, plan.staying, plan.placed)
            return
        if not call.as_json:
            copied = [size for *_, size in _within_nodes(balance, plan.placed)]
            say(summary_of(plan.moves, duration_ms, plan.begun, copied))
            if not (plan.moves or plan.begun or plan.staying or plan.placed):
                return
        await _execute(call, admin, plan, balance.sizes(), no_wait)


async def _execute(
    call: CommandCall, admin: Admin, plan: _Plan, sizes: Mapping[TopicPartition, int], no_wait: bool
) -> None:
    """Queue and begin the moves of a plan, and wait for them. sizes: bytes of replicas."""
    clock, moves = MachineClock(), plan.moves
    if no_wait:
        refused = await queue_moves(admin, moves)
        in_place, unplaced = await begin_log_dir_moves(admin, plan.placed, clock)
    else:
        progress = ProgressLines(quiet=call.as_json)
        refused = await execute_moves(admin, moves, clock, on_progress=progress.report, begun=plan.begun)
        moves = [*plan.begun, *moves]
        # Afterwards: a replica that the plan takes away would be copied in vain.
        copying = ProgressLines(quiet=call.as_json, of="replica")
        in_place, unplaced = await execute_log_dir_moves(admin, plan.placed, sizes, clock, on_progress=copying.report)
    failures = refusals_of([*refused, *unplaced])
    failures += [{"partition": str(partition), "error": why} for partition, why in plan.staying.items()]
    done, count = "queued" if no_wait else "moved", len(moves) - len(refused)
    if call.as_json:
        moved = {done: count, "bytes": sum(move.moved_bytes for move in moves), "log_dirs": in_place}
        print_json({**moved, "refused": failures})
    else:
        for each in failures:
            say(f"{each['partition']}: {each['error']}")
        say(f"{counted(count, 'partition')} {done}")
        if in_place and no_wait:
            say(
                f"{counted(in_place, 'replica')} to be in the log directories of the plan: `tidelog log-dirs --logs` "
                "shows which are still copied"
            )
        elif in_place:
            say(f"{counted(in_place, 'replica')} in the log directories of the plan")
    if failures:
        raise click.exceptions.Exit(1)


async def _show_status(call: CommandCall) -> None:
    async with administrator(call.connection) as admin:
        found = await look_at_queue(admin)
    if call.as_json:
        print_json(plain(found))
        return
    waits = f"; {found.waits_for}" if found.waits_for else ""
    copies = f"; {counted(found.copies, 'replica')} copied within their nodes" if found.copies else ""
    say(
        f"{counted(found.queued, 'move')} queued, {found.running} in progress, at most {found.left_bytes:,} bytes to "
        f"fetch{waits}{copies}"
    )


async def _cancel(call: CommandCall) -> None:
    async with administrator(call.connection) as admin:
        report_cancelled(call, await cancel_moves(admin, MachineClock()), {}, "")


def report_cancelled(
    call: CommandCall, results: Sequence[PartitionResult], more: Mapping[str, object], note: str
) -> None:
    """Show what was cancelled. Exit code 1: something was not. more: fields of the JSON document; note: follows the
    number of moves."""
    failures = refusals_of([each for each in results if each.error is not None])
    cancelled = [str(each.partition) for each in results if each.error is None]
    if call.as_json:
        print_json({**more, "cancelled": cancelled, "refused": failures})
    else:
        for each in failures:
            say(f"{each['partition']}: {each['error']}")
        say(f"{counted(len(cancelled), 'move')} cancelled{note}")
    if failures:
        raise click.exceptions.Exit(1)


def _planned(
    balance: ClusterBalance, drain: Sequence[int], log_dirs: Sequence[str], partial: bool, plan_file: Path | None
) -> _Plan:
    if plan_file is not None:
        return _read_plan(balance, plan_file)
    if placed := balance.dir_moves(drain, log_dirs):
        return _Plan([], [], placed)  # all of it stays on the node, and nothing is sent over the network
    staying = balance.staying(drain, log_dirs=log_dirs) if partial else {}
    try:
        moves, begun = balance.planned(drain, staying, log_dirs=log_dirs)
    except TooFewNodes as error:
        # The goal is an empty node: before bytes are moved for it, its operator learns that it cannot be reached.
        raise TooFewNodes(f"{error.message}. Nothing was moved; --partial moves the others") from error
    return _Plan(moves, begun, {} if drain else balance.even_dirs(moves), staying)


def _read_plan(balance: ClusterBalance, plan_file: Path) -> _Plan:
    try:
        text = plan_file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise WrongUsage(f"the plan {str(plan_file)!r} cannot be read: {error}") from error
    targets = parse_reassignment(text)
    begun = [move for move in balance.moving if targets.get(move.partition) == move.after]
    return _Plan(balance.moves_to(targets), begun, parse_log_dirs(text))


def say_what_is_missing(balance: ClusterBalance) -> None:
    """Say what a plan for the cluster does not know."""
    if balance.trouble:
        say(f"warning: {balance.trouble}")
    if balance.unanswered:
        say(f"warning: node {', '.join(map(str, balance.unanswered))} did not report the sizes of its logs")
    if balance.hidden:
        say(
            f"warning: the plan leaves out {counted(len(balance.hidden), 'topic')} that you may not DESCRIBE, or "
            f"that were deleted just now: {', '.join(balance.hidden[:_NAMED_MAX])}"
        )


def refusals_of(refused: Sequence[PartitionResult]) -> list[dict[str, str]]:
    """The moves that were refused or cancelled, and why."""
    return [
        {"partition": str(each.partition), "error": "" if each.error is None else each.error.message}
        for each in refused
    ]


class ProgressLines:
    """Says how far the moves are, each time that much has changed, and what they wait for if nothing does."""

    def __init__(self, *, quiet: bool, of: str = "partition") -> None:
        """of: what moves."""
        self._quiet, self._of = quiet, of
        self._said, self._clock = -_REPORT_MS, MachineClock()
        self._last = -1

    def report(self, progress: MoveProgress) -> None:
        """Say it if moves were completed, at most every ten seconds; else every minute."""
        now = self._clock.monotonic_ms()
        pause = _WAITING_MS if progress.done == self._last else _REPORT_MS
        if self._quiet or not progress.total or now - self._said < pause:
            return
        waits = f"; {progress.waits_for}" if progress.waits_for and progress.done == self._last else ""
        self._last, self._said = progress.done, now
        left = "" if progress.left_ms is None else f", about {_duration(progress.left_ms)} left"
        say(
            f"{progress.done} of {counted(progress.total, self._of)} moved, {progress.running} in progress, "
            f"{progress.done_bytes:,} of {progress.total_bytes:,} bytes{left}{waits}"
        )


def show_plan(
    call: CommandCall,
    balance: ClusterBalance,
    moves: Sequence[ReplicaMove],
    duration_ms: int,
    begun: Sequence[ReplicaMove],
    staying: Mapping[TopicPartition, str],
    placed: Mapping[NodeId, Mapping[TopicPartition, str]] | None = None,
) -> None:
    """Print a plan that is not executed. staying: partitions that no other node can take, with the reason. placed: the
    log directories that it names."""
    placed = placed or {}
    before, after = balance.shares(), balance.shares(moves)
    dirs_before, dirs_after = balance.dir_shares(), balance.dir_shares(moves, placed)
    if call.as_json:
        print_json(
            {
                **reassignment_document(moves, placed, balance.partitions),
                "moves": [_move_fields(move) for move in moves],
                "bytes": sum(move.moved_bytes for move in moves),
                "expected_ms": duration_ms,
                "nodes": [
                    {"node": node, "before": plain(share), "after": plain(after[node])}
                    for node, share in before.items()
                ],
                "in_progress": [str(move.partition) for move in begun],
                "staying": [{"partition": str(partition), "error": why} for partition, why in staying.items()],
                "log_dirs": [
                    {"node": node, "partition": partition, "log_dir": path, "bytes": size}
                    for node, partition, path, size in _within_nodes(balance, placed)
                ],
                "directories": [
                    {"node": node, "log_dir": path, "before": plain(share), "after": plain(dirs_after[node][path])}
                    for node, shares in dirs_before.items()
                    for path, share in shares.items()
                ],
            }
        )
        return
    if moves:
        rows = [
            (
                str(move.partition),
                move.before,
                move.after,
                ", ".join(f"{log_dir} of node {node}" for node, log_dir in move.leaving_dirs.items()),
                move.moved_bytes,
            )
            for move in moves
        ]
        print_table("moves", ("partition", "replicas", "new replicas", "leaves", "bytes"), rows)
        print_table(
            "nodes, before and after",
            ("node", "replicas", "leaders", "bytes", "load (bytes/s)"),
            [(node, *_changes(share, after[node], _NODE_COLUMNS)) for node, share in before.items()],
        )
    if within := _within_nodes(balance, placed):
        print_table("moves between log directories", ("node", "partition", "to log directory", "bytes"), within)
        changed = [(node, path, share) for node in placed for path, share in dirs_before.get(node, {}).items()]
        print_table(
            "log directories, before and after",
            ("node", "path", *_DIRECTORY_COLUMNS),
            [
                (node, path, *_changes(share, dirs_after[node][path], _DIRECTORY_COLUMNS))
                for node, path, share in changed
            ],
        )
    for partition, why in staying.items():
        say(f"{partition} stays: {why}")
    say(summary_of(moves, duration_ms, begun, [size for *_, size in within]))


def _move_fields(move: ReplicaMove) -> dict[str, object]:
    return {
        "partition": str(move.partition),
        "before": move.before,
        "after": move.after,
        "leaving_log_dirs": {str(node): log_dir for node, log_dir in move.leaving_dirs.items()},
        "bytes": move.moved_bytes,
    }


def _within_nodes(
    balance: ClusterBalance, placed: Mapping[NodeId, Mapping[TopicPartition, str]]
) -> list[tuple[NodeId, str, str, int]]:
    """The replicas that move within their nodes: node, partition, new log directory, bytes."""
    sizes = balance.sizes()
    return [
        (node, str(partition), path, sizes.get(partition, 0))
        for node, places in placed.items()
        for partition, path in places.items()
    ]


def _changes(before: object, after: object, names: Sequence[str]) -> list[str]:
    """The columns of a node or a log directory: what it has, and will have."""
    pairs = [(getattr(before, name), getattr(after, name)) for name in names]
    return [f"{old:,}" if old == new else f"{old:,} -> {new:,}" for old, new in pairs]


def summary_of(
    moves: Sequence[ReplicaMove], duration_ms: int, begun: Sequence[ReplicaMove], copied: Sequence[int] = ()
) -> str:
    """A plan in a line. duration_ms: what it takes at least. copied: bytes of each replica that moves within its
    node."""
    parts = []
    if begun:
        parts.append(f"{counted(len(begun), 'partition')} already in progress or queued")
    if moves:
        total = sum(move.moved_bytes for move in moves)
        parts.append(f"{counted(len(moves), 'partition')} to move, {total:,} bytes, at least {_duration(duration_ms)}")
    if copied:
        parts.append(f"{counted(len(copied), 'replica')} to move between log directories, {sum(copied):,} bytes")
    return "; ".join(parts) or "nothing to move"


def _duration(ms: int) -> str:
    minutes, seconds = divmod(-(-ms // 1_000), 60)
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
