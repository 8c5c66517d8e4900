"""Listeners of Kafka's protocol that break a rule: of the order of answers, of what has none, of frames and errors."""

from __future__ import annotations

from collections import deque
from itertools import repeat
from typing import Any, Final

from node.api.produce import ProducedBatch
from node.listeners.kafka import kafka_fetch, kafka_produce
from node.listeners.kafka.kafka_connection import KafkaConnection
from tests.sim import kafka_stories as stories
from tests.sim.mutants.mutant import Mutant, Patch
from tidelog.types import NO_TIMESTAMP, LeaderEpoch, Offset

ANOTHER_ANSWER: Final = r"was given the answer to request \d+ of a connection, where that to"


def answers_leave_when_they_are_ready(patch: Patch) -> None:
    """Answers overtake those of earlier requests that take longer."""
    send_answers = KafkaConnection._send_answers

    def sorted_by_readiness(self: Any) -> None:
        self._opened = deque(sorted(self._opened, key=lambda opened: opened.answer is None))
        send_answers(self)

    patch.setattr(KafkaConnection, "_send_answers", sorted_by_readiness)


def acks_0_is_answered(patch: Patch) -> None:
    """A produce request with acks=0 has an answer like any other."""
    produced = kafka_produce._produced

    def answered(message: Any, batches: Any, version: int) -> Any:
        if message.acks != 0:
            return produced(message, batches, version)
        none = ProducedBatch(None, Offset(0), NO_TIMESTAMP, Offset(0), LeaderEpoch(0))
        return produced(message.replace(acks=1), repeat(none), version)

    patch.setattr(kafka_produce, "_produced", answered)


def errors_of_batches_are_not_told(patch: Patch) -> None:
    """A batch that was refused is answered without an error."""
    patch.setattr(kafka_produce, "code_of", lambda _error: 0)


def answers_name_the_first_partition(patch: Patch) -> None:
    """The answer for a batch has partition 0."""
    partition = kafka_produce._partition
    patch.setattr(kafka_produce, "_partition", lambda _index, *rest: partition(0, *rest))


def half_a_frame_is_a_frame(patch: Patch) -> None:
    """A request is begun when its first bytes have arrived."""
    buffer_updated = KafkaConnection.buffer_updated

    def whole(self: Any, nbytes: int) -> None:
        is_frame = self._buffer is not self._size_bytes
        buffer_updated(self, len(self._buffer) - self._filled if is_frame else nbytes)

    patch.setattr(KafkaConnection, "buffer_updated", whole)


def a_connection_that_was_full_stays_so(patch: Patch) -> None:
    """When the client has read what it did not take at once, nothing goes on."""
    patch.setattr(KafkaConnection, "resume_writing", lambda _: None)


def waiting_frames_are_forgotten(patch: Patch) -> None:
    """A frame that had to wait for the answers of others is not begun when they have left."""
    begin_frames = KafkaConnection._begin_frames

    def begin(self: Any) -> None:
        if not self._is_late:
            begin_frames(self)

    def send(self: Any) -> None:
        self._is_late = True
        try:
            send_answers(self)
        finally:
            self._is_late = False

    send_answers = KafkaConnection._send_answers
    patch.setattr(KafkaConnection, "_is_late", False, raising=False)
    patch.setattr(KafkaConnection, "_begin_frames", begin)
    patch.setattr(KafkaConnection, "_send_answers", send)


def records_are_of_another_partition(patch: Patch) -> None:
    """An answer has the records of a partition where those of the next one belong."""
    partition = kafka_fetch._partition
    last: list[Any] = [b""]

    def mixed(*args: Any) -> Any:
        found = partition(*args)
        records, last[0] = last[0] or found.records, found.records
        return found.replace(records=records)

    patch.setattr(kafka_fetch, "_partition", mixed)


MUTANTS: Final = (
    Mutant(
        answers_leave_when_they_are_ready,
        "order of answers",
        stories.leaders_of_kafka_clients_change,
        ANOTHER_ANSWER,
    ),
    Mutant(acks_0_is_answered, "acks=0", stories.kafka_clients_are_answered_in_order, ANOTHER_ANSWER),
    Mutant(
        errors_of_batches_are_not_told,
        "errors",
        stories.leaders_of_kafka_clients_change,
        "is acknowledged at offset -1",
    ),
    Mutant(
        answers_name_the_first_partition,
        "order of answers",
        stories.kafka_clients_are_answered_in_order,
        "was answered for",
    ),
    Mutant(
        half_a_frame_is_a_frame,
        "frames",
        stories.kafka_clients_are_answered_in_order,
        f"{ANOTHER_ANSWER}|the metadata of orders name None|is refused: CorruptRecord",
    ),
    Mutant(
        a_connection_that_was_full_stays_so,
        "back-pressure",
        stories.kafka_clients_are_answered_in_order,
        "has no answer to its Fetch|the reader has everything",
    ),
    Mutant(
        waiting_frames_are_forgotten,
        "order of requests",
        stories.kafka_clients_are_answered_in_order,
        "has no answer to its|a node has ended the connection",
    ),
    Mutant(
        records_are_of_another_partition,
        "fetch",
        stories.kafka_clients_are_answered_in_order,
        "a reader of orders-",
    ),
)
