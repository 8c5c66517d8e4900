"""GetMetadata: nodes, topics, partitions and leaders, for clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple

from replication.controller.image import PartitionState
from tidelog.errors import TidelogError
from tidelog.security.acls import AclOperation
from tidelog.types import NodeAddress, NodeId, Offset
from tidelog.values import dataclass


@dataclass(frozen=True, slots=True)
class GetMetadataRequest:
    """A request for the nodes of the cluster and for topics."""

    topics: tuple[str, ...] = ()
    """The requested topics. A topic id that no topic can have (not 16 bytes) is answered as unknown."""
    topic_ids: tuple[bytes, ...] = ()
    all_topics: bool = False
    """Return every topic, whatever the other fields name."""
    with_topic_operations: bool = False
    with_cluster_operations: bool = False
    """Tell what the caller may do (KIP-430)."""
    creates_missing: bool = False
    """Create the named topics that do not exist, if the node's `auto.create.topics.enable` allows it."""


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
    operations: tuple[AclOperation, ...] | None = None
    """What the caller may do with it; None: it has not asked."""


@dataclass(frozen=True, slots=True)
class GetMetadataAnswer:
    """The nodes of the cluster and the requested topics."""

    cluster_id: str
    controller_id: NodeId
    nodes: tuple[NodeAddress, ...]
    """The unfenced nodes, with their addresses on the listener of the request."""
    topics: tuple[TopicMetadata, ...]
    metadata_offset: Offset
    """The answering node has applied the metadata log up to here."""
    operations: tuple[AclOperation, ...] | None = None
    """What the caller may do with the cluster; None: it has not asked."""
