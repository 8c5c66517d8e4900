"""GetMetadata: nodes, topics, partitions and leaders, for clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from replication.controller.image import PartitionState
from tidelog.errors import TidelogError
from tidelog.types import NodeAddress, NodeId, Offset


@dataclass(frozen=True, slots=True)
class GetMetadataRequest:
    """topics, topic_ids: the requested topics. A topic id that no topic can have (not 16 bytes) is answered as unknown.
    all_topics: every topic, regardless of the two."""

    topics: tuple[str, ...] = ()
    topic_ids: tuple[bytes, ...] = ()
    all_topics: bool = False


class PartitionMetadata(NamedTuple):
    """A partition. offline: replicas on nodes that are fenced or whose directory is offline. A tuple: an answer has up
    to 10,000 of them."""

    state: PartitionState
    offline: Sequence[NodeId]


class SharedPartitions(tuple[PartitionMetadata, ...]):  # noqa: SLOT001 - a tuple has no slots beside its items
    """The partitions of a topic, which many answers share. messages: as their listener sends them, once it has."""

    messages: Sequence[Any] | None = None


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """A topic, or why there is none of the requested name or id. configs: every setting in effect, defaults too."""

    name: str = ""
    topic_id: bytes = b""
    error: TidelogError | None = None
    partitions: SharedPartitions = field(default_factory=SharedPartitions)
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GetMetadataAnswer:
    """nodes: the unfenced nodes, with their addresses on the listener of the request. metadata_offset: how far the
    answering node has applied the metadata log."""

    cluster_id: str
    controller_id: NodeId
    nodes: tuple[NodeAddress, ...]
    topics: tuple[TopicMetadata, ...]
    metadata_offset: Offset
