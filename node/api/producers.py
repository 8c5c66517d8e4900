"""InitProducerId: identities of idempotent producers (KIP-98)."""

from __future__ import annotations

from tidelog.types import ProducerId
from tidelog.values import dataclass


@dataclass(frozen=True, slots=True)
class InitProducerIdRequest:
    """The exhausted producer id and its last epoch; -1 none."""

    producer_id: ProducerId
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class InitProducerIdAnswer:
    """A new id and its first epoch; the producer increments the epoch by itself (KIP-360)."""

    producer_id: ProducerId
    producer_epoch: int
