"""The interface between a coordinator's state machine and the runtime that feeds it (node/coordinators/).

A machine holds the state of one partition of an internal topic. The runtime loads it by replay when this node becomes
the leader of the partition, then passes it requests, metadata and the time. A machine decides without changing its
state: the runtime appends the records of a decision, applies them with `apply`, and gives the answer and the effects
away once the records, and everything that was applied before, are committed. A decision without records waits in the
same way for what was applied before it, so that nobody sees what may still be lost.

The runtime decides, applies and decides again within one turn of the loop, and appends the records of all these
decisions together. If an append fails, the runtime drops the machine and loads it again from the log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from replication.controller.image import ClusterImage
from replication.coordination.coordinator_record import CoordinatorRecord
from tidelog.errors import TidelogError
from tidelog.types import Millis, Offset, ProducerId
from tidelog.values import dataclass

K_contra = TypeVar("K_contra", contravariant=True)
V_contra = TypeVar("V_contra", contravariant=True)
A_co = TypeVar("A_co", covariant=True)


class Instant(NamedTuple):
    """The present time."""

    monotonic_ms: Millis
    """For timeouts."""
    wall_ms: Millis
    """Since 1970, for records."""


@dataclass(frozen=True, slots=True)
class TransactionalProducer:
    """The producer in whose transaction records are appended. As the answer to InitTransactionalProducer and EndTxn:
    that of the next transaction; with version 1 EndTxn changes neither field."""

    producer_id: ProducerId
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class Decision(Generic[A_co]):
    """The decision of a machine."""

    answer: A_co | TidelogError
    """For the caller of the request, once the decision is committed. An error refuses the request, and then there are
    no records; the one exception is an InitProducerId that aborts an open transaction first."""
    records: tuple[CoordinatorRecord[Any, Any], ...] = ()
    """To append, as one atomic batch, and to apply."""
    producer: TransactionalProducer | None = None
    """The records belong to the open transaction of this producer (offset commits only)."""
    effects: tuple[object, ...] = ()
    """For the driver of the machine, in order, once the decision is committed; each machine defines its own."""
    notice: str = ""
    """For the node's log, once the decision is committed: a decision that nobody asked for; empty: none."""


class CoordinatorMachine(Protocol[K_contra, V_contra]):
    """The state machine of one partition of an internal topic."""

    def apply(
        self, record: CoordinatorRecord[K_contra, V_contra], offset: Offset, producer: TransactionalProducer | None, /
    ) -> None:
        """Apply a record: in replay, or of a decision of this machine, as soon as it is made. offset: of the record;
        -1 for a decision. producer: the record belongs to the producer's transaction."""
        ...

    def apply_marker(self, producer: TransactionalProducer, /, *, committed: bool) -> None:
        """Apply the end of a producer's transaction: in replay, or when its marker was appended."""
        ...

    def loaded(self, image: ClusterImage, coordinator_epoch: int, now: Instant, /) -> Sequence[Decision[Any]]:
        """The replay has ended. Sessions and timeouts start now. coordinator_epoch: leader epoch of the partition.
        Returns the decisions that the state needs at once; their answers go nowhere."""
        ...

    def handle(self, request: Any, now: Instant, /) -> Decision[Any]:
        """Decide on a request. Never raises a TidelogError: it is the answer."""
        ...

    def on_image(self, image: ClusterImage, now: Instant, /) -> Sequence[Decision[Any]]:
        """The metadata of the cluster changed."""
        ...

    def tick(self, now: Instant, /) -> Sequence[Decision[Any]]:
        """Decide on deadlines that have passed. The runtime applies and appends the decisions, then calls `deadline`
        again."""
        ...

    def deadline(self) -> Millis | None:
        """Monotonic time at which `tick` has work; None: at no time."""
        ...

    def sizes(self) -> Mapping[str, int]:
        """How many entries of each kind the state has, for the metrics."""
        ...
