"""What applications were told about their records, compared with what is committed.

  - A record acknowledged with acks=all is committed at its offset, as it was sent, from then on.
  - A batch of an idempotent producer is committed once.

Invariants: values may repeat; a record is known by its place. What an operator's choice or the topic's own settings
allow to be lost does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from testbed.sim.ledger import Ledger, Violation
from tidelog.record_exchange import ProduceBatch
from tidelog.records import iter_batches
from tidelog.records.v2.record import Record
from tidelog.types import PartitionIndex, PartitionKey, TopicId

SHOWN: Final = 40
"""Bytes of a value in a message."""


class Acknowledgement(NamedTuple):
    """One record that a client was told is written."""

    client: str
    key: PartitionKey
    offset: int
    record: Record


class Acknowledgements:
    """All of one world. ledgers: of its partitions. soon: calls a function after the present callback."""

    def __init__(self, ledgers: Mapping[PartitionKey, Ledger], soon: Callable[[Callable[[], None]], object]) -> None:
        self.all: list[Acknowledgement] = []
        self._ledgers, self._soon = ledgers, soon

    def add(self, client: str, batch: ProduceBatch, base_offset: int) -> None:
        """A client was told that a batch is written from an offset on."""
        assert isinstance(batch.topic_id, bytes), "our clients name topics by their ids"
        key = PartitionKey(TopicId(UUID(bytes=batch.topic_id)), PartitionIndex(batch.partition))
        records = [record for each in iter_batches(bytes(batch.records)) for record in each.records()]
        told = [Acknowledgement(client, key, base_offset + at, record) for at, record in enumerate(records)]
        self.all += told
        self._soon(lambda: self._judge(told))  # a violation must not become an error of the client

    def _judge(self, told: Iterable[Acknowledgement]) -> None:
        for client, key, offset, record in told:
            ledger = self._ledgers.get(key)
            if ledger is None:
                raise Violation(f"{client} was told of a record at {offset}, and nothing was ever committed there")
            if ledger.lossy or ledger.loss is not None or ledger.may_be_gone(offset):
                continue
            what = f"{ledger.name}@{offset}: acknowledged to {client} as {(record.value or b'')[:SHOWN]!r}"
            if offset not in ledger.values:
                raise Violation(f"{what}, and lost: everything below {ledger.end} is committed")
            there = ledger.record_at(offset)
            if (there.key, there.value, there.headers) != (record.key, record.value, record.headers):
                raise Violation(f"{what}, and {(there.value or b'')[:SHOWN]!r} is committed")

    def judge_all(self) -> None:
        """Compare everything again, at the end of a world. Raises Violation."""
        self._judge(self.all)
        for ledger in self._ledgers.values():
            if not ledger.is_internal:
                _written_once(ledger)


def _written_once(ledger: Ledger) -> None:
    seen: dict[tuple[int, int, int], int] = {}
    for base, data in ledger.batches.items():
        batch = next(iter(iter_batches(data)))
        if batch.is_control or batch.producer_id < 0:
            continue
        number = int(batch.producer_id), int(batch.producer_epoch), int(batch.base_sequence)
        if seen.setdefault(number, base) != base:
            raise Violation(
                f"{ledger.name}: one batch of producer {number[0]} is committed at {seen[number]} and {base}"
            )
