"""The first page: nodes, quorum, and every partition that something is wrong with."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.cluster_descriptions import ClusterDescription, NodeDescription, PartitionExplanation
from tidelog.console.html import Content, Html, address, element, facts, items, link, table
from tidelog.console.layout import alarm, notice
from tidelog.console.page_call import PageCall, Shown
from tidelog.types import NO_NODE, TopicPartition

PROBLEMS_SHOWN_MAX = 100
"""Partitions with a problem: when a node is down, thousands have the same."""


async def cluster(call: PageCall) -> Shown:
    """Nodes, controller, voters, and what is wrong."""
    found = await call.admin.describe_cluster()
    ill = await call.admin.explain_partitions()
    return Shown(
        "Cluster",
        [
            alarm(element("p", found.trouble)) if found.trouble else None,
            facts(
                (
                    ("Cluster id", found.cluster_id),
                    ("Controller", "none" if found.controller_id == NO_NODE else f"node {found.controller_id}"),
                    ("Feature level", found.feature_level),
                    ("Topics", found.topics),
                    ("Partitions", found.partitions),
                    ("Without a leader", found.leaderless_partitions),
                    ("Under-replicated", found.under_replicated_partitions),
                    ("Fewer in sync than min.insync.replicas", found.under_min_isr_partitions),
                    ("Refusing writes, disk full", found.full_partitions),
                    ("With a damaged replica", found.damaged_partitions),
                )
            ),
            _nodes(found),
            _problems(ill),
        ],
    )


def _nodes(found: ClusterDescription) -> Html:
    voters = {voter.node_id for voter in found.voters}

    def roles(node: NodeDescription) -> str:
        names = ["controller"] if node.node_id == found.controller_id else []
        return ", ".join([*names, *(["voter"] if node.node_id in voters else [])])

    def state(node: NodeDescription) -> Content:
        if node.fenced:
            return element("strong", node.state, class_="bad")
        if node.node_id in found.unanswered_nodes:
            return element("strong", "no report about its disks", class_="bad")
        return node.state

    return table(
        "Nodes",
        ("Node", "Address", "State", "Roles", "Rack", "Leads", "Replicas"),
        [
            (int(each.node_id), str(each.endpoint), state(each), roles(each), each.rack, each.leaders, each.replicas)
            for each in found.nodes
        ],
    )


def _problems(ill: list[PartitionExplanation]) -> Html:
    """Those first and at length that cannot be read or written; the others, mostly under-replicated, in a table."""
    if not ill:
        return notice(element("p", "Every partition can be read and written."))
    stuck = [each for each in ill if not (each.readable and each.writable)]
    others = [each for each in ill if each.readable and each.writable]
    return element(
        "section",
        element("h2", f"Partitions that cannot be read or written ({len(stuck)})") if stuck else None,
        explanations(stuck),
        table(
            f"Partitions with another problem ({len(others)})",
            ("Partition", "Why"),
            [(partition_link(each.partition), "; ".join(each.causes)) for each in others[:PROBLEMS_SHOWN_MAX]],
        )
        if others
        else None,
        _hidden(len(others)),
    )


def _hidden(count: int) -> Html | None:
    return element("p", f"and {count - PROBLEMS_SHOWN_MAX} more") if count > PROBLEMS_SHOWN_MAX else None


def explanations(found: Sequence[PartitionExplanation]) -> list[Html | None]:
    """Of the first of some partitions, and how many others there are."""
    return [*(_explanation(each) for each in found[:PROBLEMS_SHOWN_MAX]), _hidden(len(found))]


def _explanation(each: PartitionExplanation) -> Html:
    """What works for a partition, why not more, and what helps."""
    reads = "readable" if each.readable else "not readable"
    writes = "writable" if each.writable else "not writable"
    return element(
        "article",
        element("h3", partition_link(each.partition), f": {reads}, {writes}"),
        element("p", each.error.message) if each.error is not None else None,
        items(each.causes),
        (element("p", "What to do:"), items(each.steps)) if each.steps else None,
        class_="problem",
    )


def partition_link(partition: TopicPartition) -> Html:
    """A partition, linked to its topic."""
    return link(address("/topic", name=partition.topic), str(partition))
