"""`tidelog tier describe`: what of a topic is in the object store."""

from __future__ import annotations

from typing import Annotated

from tidelog.cli.cluster_command import CommandCall, cluster_command
from tidelog.cli.declared import Argument, CommandGroup
from tidelog.cli.output import counted
from tidelog.client.offset_lookup import time_at
from tidelog.tiering.remote_segment import RemoteSegment
from tidelog.tiering.segment_manifest import segment_key
from tidelog.types import TopicPartition

app = CommandGroup()


@cluster_command(app)
def describe(call: CommandCall, topic: Annotated[str, Argument(help="The topic.")]) -> None:
    """Show the remote segments of a topic: offsets, bytes, age and object of each, as the leaders believe."""
    found = call.query(lambda admin: admin.describe_remote_segments(topic))
    segments = [(key, each) for key, remote in sorted(found.items()) for each in remote.segments]
    url = next((remote.store_url for remote in found.values() if remote.store_url), "")
    size = sum(each.log_size for _, each in segments)
    title = f"{topic}: {counted(len(segments), 'remote segment')}, {size} bytes in {url}"
    if not url:
        title = f"{topic}: no remote segments: it has no remote tier, or no records"
    rows = [
        (
            str(key),
            each.start_offset,
            each.end_offset - 1,
            each.log_size,
            each.copied_in,
            "-" if each.max_timestamp < 0 else time_at(each.max_timestamp).isoformat(timespec="milliseconds"),
            segment_key(topic, each),
        )
        for key, each in segments
    ]
    heads = ("partition", "first", "last", "bytes", "copied in epoch", "youngest record", "object")
    call.show([_document(topic, key, each) for key, each in segments], title, heads, rows)


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
