"""`tidelog snapshot create|list|describe|extend|delete`: snapshots of topics.

Not here: `tidelog cluster snapshot`, the metadata of a cluster as a file (snapshot_commands.py).
"""

from __future__ import annotations

from typing import Annotated

from tidelog.cli.argument_values import WrongUsage
from tidelog.cli.cluster_command import CommandCall, cluster_command
from tidelog.cli.declared import Argument, CommandGroup, Option
from tidelog.cli.moments import duration_ms_of
from tidelog.cli.output import counted
from tidelog.client.offset_lookup import time_at
from tidelog.clock import MachineClock
from tidelog.topic_snapshots import TopicSnapshot
from tidelog.types import Millis

app = CommandGroup()

Name = Annotated[str, Argument(help="The name of the snapshot.")]
Expires = Annotated[str, Option("--expires", help="How long it is kept from now on, as 12h, 7d or 1d12h.")]


@cluster_command(app)
def create(
    call: CommandCall,
    name: Name,
    topics: Annotated[list[str], Argument(help="The topics.")],
    expires: Expires = "7d",
) -> None:
    """Pin the records that topics have now, with every transaction whole or not in it: none of them is removed until
    the snapshot expires."""
    keep_ms = _duration(expires)
    taken = call.query(lambda admin: admin.create_topic_snapshot(name, topics, keep_ms=keep_ms))
    partitions = [each for topic in taken.topics for each in topic.partitions]
    left_out = sum(len(each.left_out) for each in partitions)
    done = (
        f"snapshot {name}: {counted(len(taken.topics), 'topic')}, {counted(len(partitions), 'partition')}, taken at "
        f"{_shown(taken.taken_until_ms)} within {taken.taken_until_ms - taken.taken_from_ms} ms; it expires at "
        f"{_shown(taken.expires_ms)}"
    )
    sentences = [done]
    if left_out:
        sentences.append(f"left out: {counted(left_out, 'transaction')} of partitions, not committed at that moment")
    call.report(_document(taken), *sentences)


@cluster_command(app, "list")
def list_snapshots(call: CommandCall) -> None:
    """List the snapshots of topics."""
    found = call.query(lambda admin: admin.list_topic_snapshots())
    rows = [
        (each.name, ", ".join(topic.name for topic in each.topics), _offsets(each), _shown(each.expires_ms))
        for each in found
    ]
    title = counted(len(found), "snapshot")
    call.show([_document(each) for each in found], title, ("name", "topics", "offsets", "expires"), rows)


@cluster_command(app)
def describe(call: CommandCall, name: Name) -> None:
    """Show a snapshot: the first and the end offset of each partition."""
    found = call.query(lambda admin: admin.describe_topic_snapshot(name))
    rows = [
        (f"{topic.name}-{each.partition}", each.start_offset, each.end_offset, len(each.left_out))
        for topic in found.topics
        for each in topic.partitions
    ]
    title = (
        f"{name}: taken from {_shown(found.taken_from_ms)} to {_shown(found.taken_until_ms)}, expires at "
        f"{_shown(found.expires_ms)}"
    )
    call.show(_document(found), title, ("partition", "from", "to", "transactions left out"), rows)


@cluster_command(app)
def extend(
    call: CommandCall, name: Name, expires: Annotated[str, Option("--expires", help="How long from now on, as 7d.")]
) -> None:
    """Let a snapshot expire at another time, later or earlier."""
    at = Millis(MachineClock().wall_ms() + _duration(expires))
    call.query(lambda admin: admin.extend_topic_snapshot(name, at))
    call.report({"snapshot": name, "expires_ms": at}, f"snapshot {name} expires at {_shown(at)}")


@cluster_command(app)
def delete(call: CommandCall, name: Name) -> None:
    """Delete a snapshot: retention removes the records of its topics again. The topics stay."""
    call.query(lambda admin: admin.delete_topic_snapshot(name))
    call.report({"deleted_snapshot": name}, f"snapshot {name} is deleted")


def _duration(text: str) -> int:
    found = duration_ms_of(text)
    if not found:
        raise WrongUsage(f"--expires {text!r} is no duration: use a number and a unit, as 12h, 7d or 1d12h")
    return found


def _shown(milliseconds: int) -> str:
    return time_at(milliseconds).isoformat(timespec="milliseconds")


def _offsets(snapshot: TopicSnapshot) -> int:
    return sum(each.end_offset - each.start_offset for topic in snapshot.topics for each in topic.partitions)


def _document(snapshot: TopicSnapshot) -> dict[str, object]:
    return {
        "name": snapshot.name,
        "snapshot_id": str(snapshot.snapshot_id),
        "taken_from_ms": snapshot.taken_from_ms,
        "taken_until_ms": snapshot.taken_until_ms,
        "expires_ms": snapshot.expires_ms,
        "topics": [
            {
                "name": topic.name,
                "topic_id": str(topic.topic_id),
                "partitions": [
                    {
                        "partition": each.partition,
                        "start_offset": each.start_offset,
                        "end_offset": each.end_offset,
                        "end_epoch": each.end_epoch,
                        "left_out": [
                            {"producer_id": one.producer_id, "first_offset": one.first_offset} for one in each.left_out
                        ],
                    }
                    for each in topic.partitions
                ],
            }
            for topic in snapshot.topics
        ],
    }
