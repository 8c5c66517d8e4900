"""Topics: the list, and one topic with its partitions, settings and disks."""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.client.admin import PartitionDescription, TopicDescription
from tidelog.cluster_descriptions import ConfigSource, ReplicaLogDir
from tidelog.console.cluster_page import explanations
from tidelog.console.html import Content, Html, address, element, facts, field, link, table
from tidelog.console.layout import ROWS_SHOWN_MAX, not_shown, notice, read_only, search
from tidelog.console.page_call import PageCall, Shown
from tidelog.errors import TidelogError
from tidelog.types import NO_NODE, ByPartition, NodeId, Offset, TopicPartition

_SOURCES = {
    ConfigSource.TOPIC: "this topic",
    ConfigSource.NODE: "the nodes' configuration",
    ConfigSource.DEFAULT: "default",
}


async def topics(call: PageCall) -> Shown:
    """All topics whose names have the text of the filter."""
    wanted = call.request.text("filter")
    every = [each for each in await call.admin.list_topics() if wanted.casefold() in each.name.casefold()]
    create = element("p", link("/topic/create", "Create a topic", class_="button"))
    return Shown(
        "Topics",
        [
            search("/topics", field("Name contains", "filter", wanted), button="Filter"),
            create if call.visitor.may_change else read_only(call.visitor),
            table(
                f"{len(every)} topics",
                ("Topic", "Partitions", "Replicas", "Under-replicated", "Without a leader", "Durability"),
                [_topic_row(each) for each in every[:ROWS_SHOWN_MAX]],
                empty="There is no such topic that you may see.",
            ),
            not_shown(len(every), "The filter finds the others."),
        ],
    )


def _topic_row(topic: TopicDescription) -> tuple[Content, ...]:
    behind = sum(len(each.isr) < len(each.replicas) for each in topic.partitions)
    lost = sum(each.leader == NO_NODE for each in topic.partitions)
    replicas = max((len(each.replicas) for each in topic.partitions), default=0)
    return (
        link(address("/topic", name=topic.name), topic.name),
        len(topic.partitions),
        replicas,
        _bad_if(behind),
        _bad_if(lost),
        topic.configs.get("durability", ""),
    )


async def topic(call: PageCall) -> Shown:
    """One topic."""
    name = call.identity("name")
    found = await call.admin.describe_topic(name)
    shown = found.partitions[:ROWS_SHOWN_MAX]
    led = [TopicPartition(name, each.partition) for each in shown if each.leader != NO_NODE]
    try:
        starts = await call.admin.list_offsets(led, "earliest")
        ends = await call.admin.list_offsets(led, "latest")
        unknown = None
    except TidelogError as error:  # a leader has just gone: the rest of the page is still of use
        starts, ends, unknown = ByPartition(), ByPartition(), error
    ill = [each for each in await call.admin.explain_partitions() if each.partition.topic == name]
    return Shown(
        f"Topic {name}",
        [
            element("p", link(address("/records", name=name), "Browse its records", class_="button")),
            _actions(call, name),
            facts((("Topic id", str(found.topic_id)), ("Partitions", len(found.partitions)))),
            notice(element("p", f"No offsets: {unknown.message}")) if unknown is not None else None,
            element("section", explanations(ill)) if ill else None,
            _partitions(found, starts, ends),
            not_shown(len(found.partitions), f"`tidelog topic describe {name}` has all."),
            await _settings(call, name),
            await _disks(call, found),
        ],
    )


def _actions(call: PageCall, name: str) -> Html | None:
    if not call.visitor.may_change:
        return read_only(call.visitor)
    return element(
        "p",
        link(address("/topic/reassign", name=name), "Move its replicas", class_="button"),
        " ",
        link(address("/topic/delete", name=name), "Delete it", class_="button danger"),
    )


def _partitions(
    found: TopicDescription, starts: Mapping[TopicPartition, Offset], ends: Mapping[TopicPartition, Offset]
) -> Html:
    def row(each: PartitionDescription) -> tuple[Content, ...]:
        key = TopicPartition(found.name, each.partition)
        start, end = starts.get(key), ends.get(key)
        return (
            link(address("/records", name=found.name, partition=each.partition), str(each.partition)),
            element("strong", "none", class_="bad") if each.leader == NO_NODE else int(each.leader),
            int(each.leader_epoch),
            _nodes(each.replicas),
            _in_sync(each),
            _nodes(each.elr),
            _nodes(each.offline),
            _moving(each),
            "-" if start is None else int(start),
            "-" if end is None else int(end),
        )

    columns = (
        "Partition",
        "Leader",
        "Epoch",
        "Replicas",
        "In sync",
        "Eligible besides",
        "Offline",
        "Moving",
        "Log start",
        "Log end",
    )
    return table("Partitions", columns, [row(each) for each in found.partitions[:ROWS_SHOWN_MAX]])


def _in_sync(each: PartitionDescription) -> Content:
    nodes = _nodes(each.isr)
    return nodes if len(each.isr) >= len(each.replicas) else element("strong", nodes, class_="bad")


def _moving(each: PartitionDescription) -> str:
    parts = (("adds", each.adding), ("removes", each.removing), ("queued: to", each.queued))
    return ", ".join(f"{what} {_nodes(nodes)}" for what, nodes in parts if nodes)


async def _settings(call: PageCall, name: str) -> Html:
    found = (await call.admin.describe_topic_settings([name]))[name]
    if found.error is not None:
        return notice(element("p", f"No settings: {found.error.message}"))
    return table(
        "Settings",
        ("Setting", "Value", "Set by"),
        [
            (each.key, "unset" if each.value is None else each.value, _SOURCES.get(each.source, str(each.source)))
            for each in sorted(found.configs, key=lambda each: (each.source, each.key))
        ],
    )


async def _disks(call: PageCall, found: TopicDescription) -> Html:
    nodes = sorted({node for each in found.partitions for node in each.replicas})
    places = [TopicPartition(found.name, each.partition) for each in found.partitions]
    try:
        described = await call.admin.describe_log_dirs(nodes, places)
    except TidelogError as error:
        return notice(element("p", f"No sizes: {error.message}"))
    return table("On disk", ("Node", "Directory", "Logs", "Bytes"), _directory_rows(described))


def _directory_rows(described: Mapping[NodeId, list[ReplicaLogDir] | TidelogError]) -> list[tuple[Content, ...]]:
    rows: list[tuple[Content, ...]] = []
    for node, found in described.items():
        if isinstance(found, TidelogError):
            rows.append((int(node), element("strong", found.message, class_="bad"), "-", "-"))
            continue
        for each in found:
            if each.error is not None:
                rows.append((int(node), element("strong", each.error.message, class_="bad"), "-", "-"))
            elif each.logs:
                path = f"{each.path} (cordoned)" if each.cordoned else each.path
                rows.append((int(node), path, len(each.logs), sum(log.size for log in each.logs)))
    return rows


def _nodes(nodes: tuple[NodeId, ...]) -> str:
    return ", ".join(map(str, nodes))


def _bad_if(count: int) -> Content:
    return element("strong", count, class_="bad") if count else 0
