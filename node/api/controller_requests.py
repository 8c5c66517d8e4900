"""Requests of nodes to the active controller. Most values are events and answers of the controller itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from node.api.api import Api
from tidelog.errors import TidelogError
from tidelog.types import LeaderEpoch, NodeId, PartitionEpoch, PartitionKey


@dataclass(frozen=True, slots=True)
class AcceptedIsr:
    """The state of a partition after an accepted proposal."""

    leader: NodeId
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    isr: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class ProposalOutcome:
    """The outcome of one proposal: the resulting state, or why it was rejected."""

    key: PartitionKey
    outcome: AcceptedIsr | TidelogError


@dataclass(frozen=True, slots=True)
class AlterPartitionAnswer:
    """In the order of the proposals."""

    partitions: tuple[ProposalOutcome, ...]


@dataclass(frozen=True, slots=True)
class Envelope:
    """A change that a node passes on to the active controller."""

    api: Api[Any, Any]
    """One with `is_forwarded`."""
    asked: Any
    principal: str = ""
    """The caller who asked the node; empty if the node asks in its own name. The node has authorized it."""


@dataclass(frozen=True, slots=True)
class EnvelopeAnswer:
    """The answer to the change."""

    api: Api[Any, Any]
    answered: Any
