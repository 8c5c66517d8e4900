"""`tidelog tier describe`: what of a topic is in the object store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Final

from tidelog.cli.cluster_command import CommandCall, cluster_command
from tidelog.cli.declared import Argument, CommandGroup
from tidelog.cli.output import counted, print_json, print_table
from tidelog.client.offset_lookup import time_at
from tidelog.client.remote_logs import RemoteSegments
from tidelog.standard_streams import say
from tidelog.tiering.remote_segment import CopyProgress, LostRemoteSegment, RemoteSegment
from tidelog.tiering.segment_manifest import segment_key
from tidelog.types import TopicPartition

app = CommandGroup()

_YEAR_10000_MS: Final = 253_402_300_800_000
"""The first millisecond that a datetime does not have."""


@cluster_command(app)
def describe(call: CommandCall, topic: Annotated[str, Argument(help="The topic.")]) -> None:
    """Show the remote segments of a topic: offsets, bytes, age and object of each, as the leaders believe; those that
    an unclean election has lost, with what to do; and partitions whose copies fail."""
    found = call.query(lambda admin: admin.describe_remote_segments(topic))
    segments = [(key, each) for key, remote in sorted(found.items()) for each in remote.segments]
    lost = [(key, each) for key, remote in sorted(found.items()) for each in remote.lost]
    progress = [(key, remote.progress) for key, remote in sorted(found.items()) if remote.progress is not None]
    if call.as_json:
        documents = [_document(topic, key, each) for key, each in segments]
        copies = [{"partition": key.partition, **asdict(each)} for key, each in progress]
        lost_documents = [_lost_document(topic, key, each) for key, each in lost]
        print_json({"segments": documents, "lost": lost_documents, "copies": copies})
        return
    url = next((remote.store_url for remote in found.values() if remote.store_url), "")
    size = sum(each.log_size for _, each in segments)
    title = f"{topic}: {counted(len(segments), 'remote segment')}, {size} bytes in {url}"
    if not url:
        title = f"{topic}: no remote segments: it has no remote tier, or no records"
    rows = [
        (*_place(key, each), each.log_size, each.copied_in, _time(each.max_timestamp), segment_key(topic, each))
        for key, each in segments
    ]
    heads = ("partition", "first", "last", "bytes", "copied in epoch", "youngest record", "object")
    print_table(title, heads, rows)
    if lost:
        _print_lost(topic, lost, found)
    if any(each.failure for _, each in progress):
        _print_failures(topic, progress)


def _print_lost(
    topic: str,
    lost: list[tuple[TopicPartition, LostRemoteSegment]],
    found: Mapping[TopicPartition, RemoteSegments],
) -> None:
    rows = [
        (
            *_place(key, each.segment),
            each.segment.log_size,
            _epochs(each.segment),
            _time(each.since_ms),
            _time(each.deleted_at_ms, none="never"),
            segment_key(topic, each.segment),
        )
        for key, each in lost
    ]
    title = f"{topic}: {counted(len(lost), 'segment')} of leader epochs that an unclean election has lost; not read"
    heads = ("partition", "first", "last", "bytes", "epochs", "lost since", "will be deleted", "object")
    print_table(title, heads, rows)
    for key, remote in sorted(found.items()):
        if remote.lost:
            say(_next_step(key))


def _print_failures(topic: str, progress: list[tuple[TopicPartition, CopyProgress]]) -> None:
    failing = [(key, each) for key, each in progress if each.failure]
    rows = [
        (str(key), each.waiting_segments, each.waiting_bytes, _time(each.failing_since_ms), each.failure)
        for key, each in failing
    ]
    title = f"{topic}: {counted(len(failing), 'partition')} whose copies fail: what waits stays on the nodes"
    print_table(title, ("partition", "waiting segments", "bytes", "failing since", "last error"), rows)


def _next_step(key: TopicPartition) -> str:
    return (
        f"{key}: if the unclean election was intended, do nothing: they are deleted at their time. If not, "
        "stop the node that leads before that time, start one whose replica has these epochs, and run `tidelog "
        f"partition elect --unclean {key}`: what was written since the wrong election is lost. If no replica has them, "
        "copy the objects to another place before that time: each begins as a .log file does"
    )


def _place(key: TopicPartition, segment: RemoteSegment) -> tuple[str, int, int]:
    return str(key), segment.start_offset, segment.end_offset - 1


def _epochs(segment: RemoteSegment) -> str:
    return ", ".join(str(each.epoch) for each in segment.leader_epochs)


def _time(milliseconds: int, *, none: str = "-") -> str:
    if not 0 <= milliseconds < _YEAR_10000_MS:
        return none
    return time_at(milliseconds).isoformat(timespec="milliseconds")


def _document(topic: str, key: TopicPartition, segment: RemoteSegment) -> dict[str, object]:
    return {
        "partition": key.partition,
        "start_offset": segment.start_offset,
        "end_offset": segment.end_offset,
        "bytes": segment.log_size,
        "copied_in": segment.copied_in,
        "max_timestamp": segment.max_timestamp,
        "object": segment_key(topic, segment),
    }


def _lost_document(topic: str, key: TopicPartition, lost: LostRemoteSegment) -> dict[str, object]:
    return {
        **_document(topic, key, lost.segment),
        "epochs": [each.epoch for each in lost.segment.leader_epochs],
        "since_ms": lost.since_ms,
        "deleted_at_ms": lost.deleted_at_ms,
        "next_step": _next_step(key),
    }
