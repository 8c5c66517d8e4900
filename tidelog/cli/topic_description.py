"""`tidelog topic describe|offsets`: what the cluster knows of topics: leaders, replicas, offsets, sizes, settings."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Final

from tidelog.cli.argument_values import WrongUsage
from tidelog.cli.cluster_command import CommandCall
from tidelog.cli.declared import Argument, Option
from tidelog.cli.matching_topics import topics_of
from tidelog.cli.moments import HELP as TIME_HELP
from tidelog.cli.moments import moment_of
from tidelog.cli.output import plain, print_json, print_table
from tidelog.cli.setting_tables import COLUMNS, setting_document, setting_rows
from tidelog.client.admin import Admin, TopicDescription
from tidelog.clock import MachineClock
from tidelog.cluster_descriptions import ResourceConfigs
from tidelog.errors import TidelogError
from tidelog.standard_streams import say
from tidelog.types import ByPartition, Offset, TopicPartition

PATIENCE_S: Final = 5.0
"""How long offsets and sizes may take, each end of the logs 2 s: a partition whose leader does not answer is shown
without them."""

Names = Annotated[list[str], Argument(metavar="TOPIC...", help="Names of topics.")]
Regex = Annotated[bool, Option("--regex", "-r", help="The names are regular expressions over whole names.")]


@dataclass(frozen=True, slots=True)
class PartitionExtent:
    """What a partition has; None: unknown."""

    start: Offset | None
    end: Offset | None
    bytes: int | None
    """Of the leader's log."""


@dataclass(frozen=True, slots=True)
class TopicReport:
    """Everything about a topic."""

    topic: TopicDescription
    extents: Mapping[int, PartitionExtent]
    settings: ResourceConfigs | TidelogError
    """The error: why their sources are not known."""


def describe(call: CommandCall, names: Names, regex: Regex = False) -> None:
    """Show partitions with leaders, replicas, offsets and sizes, and settings with their sources. `*` marks settings
    that are not left at their default."""

    async def work(admin: Admin) -> list[TopicReport]:
        return [await _report(admin, topic) for topic in await topics_of(admin, names, are_patterns=regex)]

    for report in call.query(work):
        if call.as_json:
            print_json(_document(report))
        else:
            _print(report)


def offsets(
    call: CommandCall,
    names: Names,
    regex: Regex = False,
    at: Annotated[
        str | None, Option("--at", help=f"The first record at or after a time: {TIME_HELP}. Default: start and end.")
    ] = None,
) -> None:
    """Show where partitions begin and end, and of topics with a remote tier where the local log begins and the last
    copied offset; or the offset for a time."""
    moment = None if at is None else moment_of(at, MachineClock().wall_ms())
    if at is not None and moment is None:
        raise WrongUsage(f"--at {at!r}: write {TIME_HELP}")

    unknown: dict[TopicPartition, TidelogError] = {}

    async def work(admin: Admin) -> tuple[list[TopicPartition], dict[str, ByPartition[Offset]]]:
        topics = await topics_of(admin, names, are_patterns=regex)
        keys, tiered = _partitions(topics), _partitions(each for each in topics if _is_tiered(each))
        if moment is not None:
            return keys, {"offset": await admin.list_offsets(keys, moment), "end": await admin.list_offsets(keys)}
        found = {"start": await admin.list_offsets(keys, "earliest"), "end": await admin.list_offsets(keys)}
        if tiered:
            # A leader may not know its remote segments: start and end are shown then too.
            found["earliest_local"] = await admin.list_offsets(tiered, "earliest-local", on_missing=unknown.__setitem__)
            found["latest_tiered"] = await admin.list_offsets(tiered, "latest-tiered", on_missing=unknown.__setitem__)
        return keys, found

    keys, found = call.query(work)
    document = [
        {
            "topic": key.topic,
            "partition": key.partition,
            **{name: each[key] for name, each in found.items() if key in each},
        }
        for key in keys
    ]
    rows = [(str(key), *(_shown(each.get(key)) for each in found.values())) for key in keys]
    call.show(document, "offsets", ("partition", *(name.replace("_", "-") for name in found)), rows)
    for key, error in unknown.items():
        say(f"what is copied of {key} is not known: {error.message}")


def _partitions(topics: Iterable[TopicDescription]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, each.partition) for topic in topics for each in topic.partitions]


def _is_tiered(topic: TopicDescription) -> bool:
    return topic.configs.get("remote.storage.enable") == "true"


def _shown(offset: Offset | None) -> int | str:
    if offset is None:
        return "-"
    return "none" if offset < 0 else offset


async def _report(admin: Admin, topic: TopicDescription) -> TopicReport:
    settings: ResourceConfigs | TidelogError
    try:
        settings = (await admin.describe_topic_settings([topic.name]))[topic.name]
        settings = settings.error or settings
    except TidelogError as error:  # a node of an earlier version: the values are in the description
        settings = error
    return TopicReport(topic, await _extents(admin, topic), settings)


def _unknown(_partition: TopicPartition, _error: TidelogError) -> None:
    """A leader that does not answer: the partition is shown without offsets, and others with theirs."""


async def _extents(admin: Admin, topic: TopicDescription) -> dict[int, PartitionExtent]:
    leaders = {TopicPartition(topic.name, each.partition): each.leader for each in topic.partitions if each.leader >= 0}
    starts: dict[TopicPartition, Offset] = {}
    ends: dict[TopicPartition, Offset] = {}
    sizes: dict[TopicPartition, int] = {}
    with suppress(TidelogError, TimeoutError):
        async with asyncio.timeout(PATIENCE_S):
            starts = await admin.list_offsets(leaders, "earliest", on_missing=_unknown)
            ends = await admin.list_offsets(leaders, "latest", on_missing=_unknown)
    with suppress(TidelogError, TimeoutError):
        async with asyncio.timeout(PATIENCE_S):
            found = await admin.describe_log_dirs(sorted(set(leaders.values())), leaders)
            for node, directories in found.items():
                if isinstance(directories, TidelogError):
                    continue
                for log in (log for directory in directories for log in directory.logs):
                    if leaders.get(log.partition) == node and not log.is_future:
                        sizes[log.partition] = log.size
    return {
        key.partition: PartitionExtent(starts.get(key), ends.get(key), sizes.get(key))
        for key in (TopicPartition(topic.name, each.partition) for each in topic.partitions)
    }


def _document(report: TopicReport) -> dict[str, object]:
    document = plain(report.topic)
    for partition in document["partitions"]:
        partition.update(plain(report.extents[partition["partition"]]))
    known = None if isinstance(report.settings, TidelogError) else report.settings.configs
    settings = None if known is None else [setting_document(each) for each in known]
    return {**document, "settings": settings}


def _print(report: TopicReport) -> None:
    topic = report.topic
    rows = [
        (
            each.partition,
            each.leader if each.leader >= 0 else "none",
            each.leader_epoch,
            each.replicas,
            each.isr,
            each.elr,
            each.offline,
            *("-" if value is None else value for value in _values(report.extents[each.partition])),
        )
        for each in topic.partitions
    ]
    columns = ("partition", "leader", "epoch", "replicas", "in sync", "eligible", "offline", "start", "end", "bytes")
    print_table(f"{topic.name}  {topic.topic_id}", columns, rows)
    if isinstance(report.settings, TidelogError):
        print_table("settings", ("key", "value"), topic.configs.items())
        say(f"not all settings of topic {topic.name} are shown: {report.settings.message}")
    else:
        print_table("settings", COLUMNS, setting_rows(report.settings.configs))


def _values(extent: PartitionExtent) -> tuple[int | None, ...]:
    return extent.start, extent.end, extent.bytes
