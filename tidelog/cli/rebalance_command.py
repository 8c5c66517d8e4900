"""`tidelog cluster rebalance`: moves replicas so that nodes have equally many, or so that a node has none."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
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
from tidelog.balancing.log_dir_moves import begin_log_dir_moves
from tidelog.balancing.move_planner import ReplicaMove
from tidelog.balancing.node_shares import NodeShare
from tidelog.balancing.reassignment_file import parse_log_dirs, parse_reassignment, reassignment_document
from tidelog.cli.argument_values import WrongUsage
from tidelog.cli.cluster_command import CommandCall, administrator
from tidelog.cli.declared import Option
from tidelog.cli.output import counted, plain, print_json, print_table, printed_warnings
from tidelog.clock import MachineClock
from tidelog.cluster_descriptions import PartitionResult
from tidelog.errors import TooFewNodes
from tidelog.standard_streams import say
from tidelog.types import NodeId, TopicPartition

_REPORT_MS = 10_000
_WAITING_MS = 60_000
_NAMED_MAX = 5

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
    """Move replicas between nodes until all have equally many, over all racks, and lead equally many partitions. The
    controller begins the moves one after the other. Waits until all have moved; after Ctrl-C they go on, and the
    same command waits again. Exit code 1: a move was refused or cancelled, or a partition stays on a drained node."""
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
        placed = balance.dir_moves(drain, log_dirs)
        moves: list[ReplicaMove] = []
        begun: list[ReplicaMove] = []
        staying: dict[TopicPartition, str] = {}
        if not placed:  # else all of it stays on the node, and nothing is sent over the network
            staying = balance.staying(drain, log_dirs=log_dirs) if partial else {}
            moves, begun = _planned(balance, drain, log_dirs, staying, plan_file)
            placed = _log_dirs_of(plan_file)
        for log_dir in balance.open_dirs(drain, log_dirs):
            say(
                f"warning: {log_dir} of node {drain[0]} is not cordoned and may get new replicas meanwhile: "
                f"`tidelog node cordon {drain[0]} --log-dir {log_dir}`"
            )
        say_what_is_missing(balance if plan_file is None else replace(balance, hidden=()))
        if save_plan is not None:
            document = reassignment_document(moves, placed, balance.partitions)
            save_plan.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        duration_ms = await expected_ms(admin, moves, assumed_rate)
        if dry_run:
            show_plan(call, balance, moves, duration_ms, begun, staying, placed)
            return
        if not call.as_json:
            say(summary_of(moves, duration_ms, begun))
            if not (moves or begun or staying or placed):
                return
        if no_wait:
            refused = await queue_moves(admin, moves)
        else:
            progress = ProgressLines(quiet=call.as_json)
            refused = await execute_moves(admin, moves, MachineClock(), on_progress=progress.report, begun=begun)
            moves = [*begun, *moves]
        begun_here, unplaced = await begin_log_dir_moves(admin, placed, MachineClock())
        failures = refusals_of([*refused, *unplaced])
        failures += [{"partition": str(partition), "error": why} for partition, why in staying.items()]
        done, count = "queued" if no_wait else "moved", len(moves) - len(refused)
        if call.as_json:
            moved = {done: count, "bytes": sum(move.moved_bytes for move in moves), "log_dirs": begun_here}
            print_json({**moved, "refused": failures})
        else:
            for each in failures:
                say(f"{each['partition']}: {each['error']}")
            say(f"{counted(count, 'partition')} {done}")
            if begun_here:
                say(
                    f"{counted(begun_here, 'replica')} to be in the log directories of the plan: `tidelog log-dirs "
                    "--logs` shows which are still copied"
                )
        if failures:
            raise click.exceptions.Exit(1)


def _log_dirs_of(plan_file: Path | None) -> dict[NodeId, dict[TopicPartition, str]]:
    """The log directories that the plan names. The file was read before."""
    return {} if plan_file is None else parse_log_dirs(plan_file.read_text(encoding="utf-8"))


async def _show_status(call: CommandCall) -> None:
    async with administrator(call.connection) as admin:
        found = await look_at_queue(admin)
    if call.as_json:
        print_json(plain(found))
        return
    waits = f"; {found.waits_for}" if found.waits_for else ""
    say(
        f"{counted(found.queued, 'move')} queued, {found.running} in progress, at most {found.left_bytes:,} bytes to "
        f"fetch{waits}"
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
    balance: ClusterBalance,
    drain: Sequence[int],
    log_dirs: Sequence[str],
    staying: Collection[TopicPartition],
    plan_file: Path | None,
) -> tuple[list[ReplicaMove], list[ReplicaMove]]:
    """The moves to queue, and those queued or in progress that belong to the same task."""
    if plan_file is not None:
        try:
            targets = parse_reassignment(plan_file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise WrongUsage(f"the plan {str(plan_file)!r} cannot be read: {error}") from error
        moves = balance.moves_to(targets)
        begun = [move for move in balance.moving if targets.get(move.partition) == move.after]
        return moves, begun
    try:
        return balance.planned(drain, staying, log_dirs=log_dirs)
    except TooFewNodes as error:
        # The goal is an empty node: before bytes are moved for it, its operator learns that it cannot be reached.
        raise TooFewNodes(f"{error.message}. Nothing was moved; --partial moves the others") from error


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

    def __init__(self, *, quiet: bool) -> None:
        self._quiet, self._said, self._clock = quiet, -_REPORT_MS, MachineClock()
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
            f"{progress.done} of {counted(progress.total, 'partition')} moved, {progress.running} in progress, "
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
    before, after = balance.shares(), balance.shares(moves)
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
    if call.as_json:
        details = [
            {
                "partition": str(move.partition),
                "before": move.before,
                "after": move.after,
                "leaving_log_dirs": {str(node): log_dir for node, log_dir in move.leaving_dirs.items()},
                "bytes": move.moved_bytes,
            }
            for move in moves
        ]
        total = sum(move.moved_bytes for move in moves)
        print_json(
            {
                **reassignment_document(moves),
                "moves": details,
                "bytes": total,
                "expected_ms": duration_ms,
                "nodes": [
                    {"node": node, "before": plain(share), "after": plain(after[node])}
                    for node, share in before.items()
                ],
                "in_progress": [str(move.partition) for move in begun],
                "staying": [{"partition": str(partition), "error": why} for partition, why in staying.items()],
                "log_dirs": [
                    {"node": node, "partition": str(partition), "log_dir": path}
                    for node, places in (placed or {}).items()
                    for partition, path in places.items()
                ],
            }
        )
        return
    if moves:
        print_table("moves", ("partition", "replicas", "new replicas", "leaves", "bytes"), rows)
        print_table(
            "nodes, before and after",
            ("node", "replicas", "leaders", "bytes", "load (bytes/s)"),
            [(node, *_changes(share, after[node])) for node, share in before.items()],
        )
    for partition, why in staying.items():
        say(f"{partition} stays: {why}")
    for node, places in (placed or {}).items():
        for partition, path in places.items():
            say(f"{partition}: to log directory {path} of node {node}")
    say(summary_of(moves, duration_ms, begun))


def _changes(before: NodeShare, after: NodeShare) -> list[str]:
    """The columns of a node: what it has, and will have."""
    pairs = [(getattr(before, name), getattr(after, name)) for name in ("replicas", "leaders", "bytes", "load")]
    return [f"{old:,}" if old == new else f"{old:,} -> {new:,}" for old, new in pairs]


def summary_of(moves: Sequence[ReplicaMove], duration_ms: int, begun: Sequence[ReplicaMove]) -> str:
    """A plan in a line. duration_ms: what it takes at least."""
    if begun:
        more = f"; {summary_of(moves, duration_ms, ())}" if moves else ""
        return f"{counted(len(begun), 'partition')} already in progress or queued{more}"
    if not moves:
        return "nothing to move"
    total = sum(move.moved_bytes for move in moves)
    return f"{counted(len(moves), 'partition')} to move, {total:,} bytes, at least {_duration(duration_ms)}"


def _duration(ms: int) -> str:
    minutes, seconds = divmod(-(-ms // 1_000), 60)
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
