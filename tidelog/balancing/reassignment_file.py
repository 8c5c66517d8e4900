"""The file format of plans: the JSON of `kafka-reassign-partitions --reassignment-json-file`.

    {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2, 4]}]}

Other fields are ignored, as Kafka does, except `log_dirs`: for each replica, the log directory of its node to which it
moves, or "any".
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from tidelog.balancing.move_planner import PlacedPartition, ReplicaMove
from tidelog.errors import InvalidRequest
from tidelog.types import NodeId, PartitionIndex, TopicPartition

_ANY_DIRECTORY = "any"


def reassignment_document(
    moves: Iterable[ReplicaMove],
    placed: Mapping[NodeId, Mapping[TopicPartition, str]] | None = None,
    partitions: Iterable[PlacedPartition] = (),
) -> dict[str, object]:
    """The plan as JSON fields. placed: the log directories to which replicas move within their nodes; partitions: where
    these are."""
    after = {move.partition: move.after for move in moves}
    places = placed or {}
    named = {name for node in places for name in places[node]} - after.keys()
    # A partition has one entry for moves of both kinds: a plan that names one twice is refused.
    after |= {each.partition: each.replicas for each in partitions if each.partition in named}
    entries = [
        {
            "topic": name.topic,
            "partition": name.partition,
            "replicas": list(replicas),
            "log_dirs": [places.get(node, {}).get(name, _ANY_DIRECTORY) for node in replicas],
        }
        for name, replicas in after.items()
    ]
    return {"version": 1, "partitions": entries}


def parse_reassignment(text: str) -> dict[TopicPartition, tuple[NodeId, ...]]:
    """The replicas that a plan names for each partition. Raises InvalidRequest."""
    try:
        document = json.loads(text)
        entries = document["partitions"]
        if document.get("version", 1) != 1:
            raise InvalidRequest(f"the plan has version {document['version']!r}: only version 1 is known")
        targets = [(_partition(entry), _replicas(entry)) for entry in entries]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidRequest(
            'the plan cannot be read: it must be JSON like {"version": 1, "partitions": [{"topic": "orders", '
            f'"partition": 0, "replicas": [1, 2]}}]}} ({error!r})'
        ) from error
    if len(dict(targets)) < len(targets):
        raise InvalidRequest("the plan names a partition twice: name each once")
    return dict(targets)


def parse_log_dirs(text: str) -> dict[NodeId, dict[TopicPartition, str]]:
    """The log directories that a plan, which `parse_reassignment` has read, names for replicas, by node."""
    found: dict[NodeId, dict[TopicPartition, str]] = {}
    for entry in json.loads(text)["partitions"]:
        for node, path in zip(_replicas(entry), entry.get("log_dirs") or (), strict=False):
            if path != _ANY_DIRECTORY:
                found.setdefault(node, {})[_partition(entry)] = path
    return found


def _partition(entry: dict[str, object]) -> TopicPartition:
    topic, index = entry["topic"], entry["partition"]
    if not isinstance(topic, str) or type(index) is not int:  # a bool is an int too
        raise TypeError(f"not a partition: {topic!r}, {index!r}")
    return TopicPartition(topic, PartitionIndex(index))


def _replicas(entry: dict[str, object]) -> tuple[NodeId, ...]:
    replicas = entry["replicas"]
    if not isinstance(replicas, list) or not replicas or not all(type(each) is int for each in replicas):
        raise ValueError(f"not a list of node ids: {replicas!r}")
    directories = entry.get("log_dirs") or []
    if not isinstance(directories, list) or not all(isinstance(each, str) and each for each in directories):
        raise ValueError(f"not a list of log directories: {directories!r}")
    if directories and len(directories) != len(replicas):
        raise InvalidRequest(
            f"the plan names {len(directories)} log directories for {len(replicas)} replicas: name one for each, or "
            f"{_ANY_DIRECTORY!r}"
        )
    return tuple(NodeId(each) for each in replicas)
