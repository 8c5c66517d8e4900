"""A story of transactions, told to a node in frames of Kafka's protocol: what each request is answered.

It is the same for a broker of Kafka and for ours, so that their answers can be compared. Producers use transaction
version 1. Topics: `a` with two partitions.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, BinaryIO

from tests.node.kafka_frames import both_ways, decoded, request_frame
from tidelog.records import EndTxnMarker, Record, build_batch, control_batch
from tidelog.types import Millis, Offset, ProducerId

TOPIC = "a"
TIMEOUT_MS = 60_000
AGAIN = (14, 15, 16, 51)
"""The coordinator loads, is missing or elsewhere, or completes the last transaction."""
NOT_VERIFIED, UNSTABLE = 19, 88
PATIENCE_S = 30.0


@dataclass
class Story:
    """A connection, and what was answered so far."""

    socket: socket.socket
    answers: BinaryIO
    outcomes: dict[str, object] = field(default_factory=dict)
    producer_id: ProducerId = ProducerId(-1)
    """The one that InitProducerId has answered last."""

    def ask(self, name: str, version: int, **fields: Any) -> Any:
        message = both_ways(f"{name}Request").module.__dict__[f"{name}Request"](**fields)
        self.socket.sendall(request_frame(name, version, message))
        size = int.from_bytes(self.answers.read(4), "big")
        return decoded(name, version, self.answers.read(size), plain=name == "ApiVersions")[1]

    def note(self, what: str, outcome: object) -> None:
        assert what not in self.outcomes
        self.outcomes[what] = outcome

    # --- requests ---

    def find_coordinators(self, *keys: str) -> None:
        """Until there are both kinds; the first request of a kind creates its topic."""
        for kind in (0, 1):
            for key in keys:
                settled(partial(self._find, kind, key))

    def _find(self, kind: int, key: str) -> int:
        return int(self.ask("FindCoordinator", 2, key=key, key_type=kind).error_code)

    def init(self, name: str | None, version: int = 4, timeout_ms: int = TIMEOUT_MS, **having: int) -> tuple[int, int]:
        """The error, and the epoch. having: what the producer continues with."""
        found: list[Any] = []

        def attempt() -> int:
            asked = {"transactional_id": name, "transaction_timeout_ms": timeout_ms, **having}
            found.append(self.ask("InitProducerId", version, **asked))
            return int(found[-1].error_code)

        code = settled(attempt)
        self.producer_id = ProducerId(found[-1].producer_id if code == 0 else -1)
        return code, found[-1].producer_epoch

    def add(self, producer: Producer, version: int = 3, *partitions: tuple[str, int]) -> list[int]:
        module = both_ways("AddPartitionsToTxnRequest").module
        topics: dict[str, list[int]] = {}
        for topic, index in partitions or ((TOPIC, 0),):
            topics.setdefault(topic, []).append(index)

        codes: list[int] = []

        def attempt() -> int:
            answer = self.ask(
                "AddPartitionsToTxn",
                version,
                v3_and_below_transactional_id=producer.name,
                v3_and_below_producer_id=producer.producer_id,
                v3_and_below_producer_epoch=producer.epoch,
                v3_and_below_topics=tuple(
                    module.AddPartitionsToTxnTopic(topic, tuple(each)) for topic, each in topics.items()
                ),
            )
            results = answer.results_by_topic_v3_and_below
            codes[:] = sorted(each.partition_error_code for topic in results for each in topic.results_by_partition)
            return codes[0]

        settled(attempt)
        return codes

    def add_group(self, producer: Producer, group: str, version: int = 3) -> int:
        def attempt() -> int:
            return int(self.ask("AddOffsetsToTxn", version, **producer.fields, group_id=group).error_code)

        return settled(attempt)

    def end(self, producer: Producer, *, committed: bool, version: int = 3) -> int:
        def attempt() -> int:
            return int(self.ask("EndTxn", version, **producer.fields, committed=committed).error_code)

        return settled(attempt)

    def produce(self, batch: bytes, name: str | None, version: int = 9, index: int = 0) -> int:
        module = both_ways("ProduceRequest").module
        data = (module.TopicProduceData(name=TOPIC, partition_data=(module.PartitionProduceData(index, batch),)),)

        def attempt() -> int:
            answer = self.ask("Produce", version, transactional_id=name, acks=-1, timeout_ms=10_000, topic_data=data)
            return int(answer.responses[0].partition_responses[0].error_code)

        return settled(attempt, (*AGAIN, NOT_VERIFIED))

    def mark(self, producer: Producer, *, committed: bool) -> int:
        """Write a marker to the first partition, as an operator."""
        module = both_ways("WriteTxnMarkersRequest").module
        topics = (module.WritableTxnMarkerTopic(TOPIC, (0,)),)
        marker = module.WritableTxnMarker(
            producer.producer_id, producer.epoch, transaction_result=committed, topics=topics, coordinator_epoch=0
        )
        (answer,) = self.ask("WriteTxnMarkers", 1, markers=(marker,)).markers
        return int(answer.topics[0].partitions[0].error_code)

    def commit(self, producer: Producer, group: str, version: int = 3, topic: str = TOPIC, **member: Any) -> int:
        module = both_ways("TxnOffsetCommitRequest").module
        offset = module.TxnOffsetCommitRequestPartition(0, 7, "")
        topics = (module.TxnOffsetCommitRequestTopic(topic, (offset,)),)

        def attempt() -> int:
            answer = self.ask("TxnOffsetCommit", version, **producer.fields, group_id=group, topics=topics, **member)
            return int(answer.topics[0].partitions[0].error_code)

        return settled(attempt)

    def committed(self, group: str) -> tuple[int, int]:
        """The error and the offset that a reader of stable offsets gets."""
        module = both_ways("OffsetFetchRequest").module
        topics = (module.OffsetFetchRequestTopic(TOPIC, (0,)),)
        answer = self.ask("OffsetFetch", 7, group_id=group, topics=topics, require_stable=True)
        (partition,) = answer.topics[0].partitions
        return partition.error_code, partition.committed_offset

    def end_offset(self, index: int = 0, *, isolation_level: int = 0) -> int:
        module = both_ways("ListOffsetsRequest").module
        topics = (module.ListOffsetsTopic(TOPIC, (module.ListOffsetsPartition(index, Millis(-1)),)),)
        answer = self.ask("ListOffsets", 2, replica_id=-1, isolation_level=isolation_level, topics=topics)
        return int(answer.topics[0].partitions[0].offset)


def settled(attempt: Any, again: tuple[int, ...] = AGAIN) -> int:
    """The error of a request that is repeated as clients do."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        code = int(attempt())
        if code not in again:
            return code
        assert time.monotonic() < deadline, f"error {code} again and again"
        time.sleep(0.02)


@dataclass
class Producer:
    """What a producer names in its requests."""

    name: str
    producer_id: ProducerId
    epoch: int

    @property
    def fields(self) -> dict[str, Any]:
        return {
            "transactional_id": self.name,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }

    def at(self, epoch: int) -> Producer:
        return Producer(self.name, self.producer_id, epoch)

    def batch(self, sequence: int = 0, *, transactional: bool = True) -> bytes:
        record = Record(Offset(0), Millis(1_700_000_000_000), b"key", b"value")
        return bytes(
            build_batch(
                [record],
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                base_sequence=sequence,
                is_transactional=transactional,
            )
        )


@contextmanager
def told_to(address: str) -> Iterator[Story]:
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), PATIENCE_S) as connection, connection.makefile("rb") as answers:
        yield Story(connection, answers)


def new_producer(story: Story, name: str) -> Producer:
    code, epoch = story.init(name)
    assert code == 0
    return Producer(name, story.producer_id, epoch)


# --- chapters -----------------------------------------------------------------------------------------------------


def producer_ids(story: Story) -> None:
    """What InitProducerId answers: first, again, to a producer that continues, to a fenced one, to nonsense."""
    story.note("an idempotent producer", story.init(None))
    story.note("an empty transactional id", story.init("")[0])
    story.note("a timeout of nothing", story.init("ids", timeout_ms=0)[0])
    story.note("a timeout of an hour", story.init("ids", timeout_ms=3_600_000)[0])
    story.note("half of what a producer has", story.init("ids", producer_id=1, producer_epoch=-1)[0])
    story.note("the first", story.init("ids"))
    first = story.producer_id
    story.note("the second", story.init("ids"))
    story.note("the same producer id", story.producer_id == first)
    for version in (3, 4):
        story.note(f"{version}: continues", story.init("ids", version, producer_id=first, producer_epoch=version - 2))
        story.note(f"{version}: fenced", story.init("ids", version, producer_id=first, producer_epoch=0)[0])
        story.note(f"{version}: another id", story.init("ids", version, producer_id=first + 99, producer_epoch=0)[0])


def refused_requests(story: Story) -> None:
    """By a producer that is fenced, that nobody knows, or whose state does not allow it."""
    former = new_producer(story, "refused")
    producer = new_producer(story, "refused")
    unknown, other = Producer("nobody", producer.producer_id, 0), Producer("refused", ProducerId(99_999), 1)
    for version in range(4):
        for who, each in (("fenced", former), ("unknown", unknown), ("another", other)):
            story.note(f"{version}: {who} adds", story.add(each, version))
            story.note(f"{version}: {who} adds a group", story.add_group(each, "readers", version))
            story.note(f"{version}: {who} commits", story.end(each, committed=True, version=version))
            story.note(f"{version}: {who} aborts", story.end(each, committed=False, version=version))
            story.note(f"{version}: {who} commits offsets", story.commit(each, "readers", version))
        for committed in (True, False):
            story.note(
                f"{version}: ends nothing {committed}", story.end(producer, committed=committed, version=version)
            )
    story.note("a topic that is missing", story.add(producer, 3, (TOPIC, 0), ("missing", 0)))
    story.note("a partition that is missing", story.add(producer, 3, (TOPIC, 0), (TOPIC, 9)))
    for version in (7, 9, 11):
        story.note(f"{version}: not added", story.produce(producer.batch(), "refused", version))
        story.note(f"{version}: a fenced batch", story.produce(former.batch(), "refused", version))
        story.note(f"{version}: another batch", story.produce(other.batch(), "refused", version))
        story.note(f"{version}: an unknown batch", story.produce(producer.batch(), "nobody", version))
    story.note("offsets that were not added", story.commit(producer, "readers"))


def ends(story: Story) -> None:
    """Commit and abort, repeated in both directions."""
    producer = new_producer(story, "ends")
    for committed in (True, False):
        kind = "commit" if committed else "abort"
        story.note(f"{kind}: adds", story.add(producer, 3, (TOPIC, 0), (TOPIC, 1)))
        story.note(f"{kind}: adds again", story.add(producer, 3, (TOPIC, 0)))
        for index in (0, 1):
            batch = producer.batch(0 if committed else 1)
            story.note(f"{kind}: writes {index}", story.produce(batch, "ends", index=index))
        story.note(f"{kind}: ends", story.end(producer, committed=committed))
        story.note(f"{kind}: ends again", story.end(producer, committed=committed))
        story.note(f"{kind}: ends otherwise", story.end(producer, committed=not committed))
        story.note(f"{kind}: writes late", story.produce(producer.batch(2), "ends"))
        for level in (0, 1):
            story.note(f"{kind}: end at level {level}", story.end_offset(isolation_level=level))


def batches(story: Story) -> None:
    """Batches that no correct client sends within a transaction."""
    producer = new_producer(story, "batches")
    story.note("adds", story.add(producer, 3, (TOPIC, 0)))
    story.note("writes", story.produce(producer.batch(), "batches"))
    story.note("writes plainly", story.produce(producer.batch(1, transactional=False), "batches"))
    story.note("writes plainly without its id", story.produce(producer.batch(1, transactional=False), None))
    story.note("writes without its id", story.produce(producer.batch(1), None))
    marker = control_batch(
        EndTxnMarker(committed=True, coordinator_epoch=0),
        timestamp=Millis(1_700_000_000_000),
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
    )
    story.note("writes a marker", story.produce(bytes(marker), "batches"))
    story.note("leaves out a sequence number", story.produce(producer.batch(5), "batches"))
    story.note("writes in a later epoch", story.produce(producer.at(producer.epoch + 1).batch(), "batches"))
    story.note("repeats its batch", story.produce(producer.batch(), "batches"))
    story.note("stable end", story.end_offset(isolation_level=1) < story.end_offset())
    story.note("is still open", story.end(producer, committed=False))


def fencing(story: Story) -> None:
    """A newer producer while a transaction is open: what it gets, and what its predecessor gets."""
    former = new_producer(story, "fencing")
    story.add(former)
    story.note("writes", story.produce(former.batch(), "fencing"))
    newer = new_producer(story, "fencing")
    story.note("epochs apart", newer.epoch - former.epoch)
    story.note("the former one writes", story.produce(former.batch(1), "fencing"))
    story.note("the former one adds", story.add(former))
    story.note("the former one commits", story.end(former, committed=True))
    story.add(newer)
    story.note("the newer one writes", story.produce(newer.batch(), "fencing"))
    story.note("the newer one commits", story.end(newer, committed=True))


def offsets(story: Story) -> None:
    """Offsets of a group: pending, committed, aborted, and by members that are none."""
    producer = new_producer(story, "offsets")
    for committed in (False, True):
        group = f"group-{committed}"
        story.find_coordinators(group)
        story.note(f"{group}: is added", story.add_group(producer, group))
        story.note(f"{group}: by a member", story.commit(producer, group, 3, generation_id=5, member_id="nobody"))
        for version in range(4):
            story.note(f"{group}: in version {version}", story.commit(producer, group, version))
        story.note(f"{group}: for a missing topic", story.commit(producer, group, topic="missing"))
        story.note(f"{group}: is pending", story.committed(group))
        story.note(f"{group}: ends", story.end(producer, committed=committed))
        settled(partial(_error_of_committed, story, group), (UNSTABLE,))
        story.note(f"{group}: has", story.committed(group))
    story.note("an empty group", story.commit(producer, ""))


def operators(story: Story) -> None:
    """An operator aborts what is open in one partition, of which the coordinator learns nothing."""
    former, producer = new_producer(story, "operators"), new_producer(story, "operators")
    story.add(producer)
    story.note("writes", story.produce(producer.batch(), "operators"))
    story.note("a former epoch", story.mark(former, committed=False))
    story.note("is aborted", story.mark(producer, committed=False))
    story.note("stable end", story.end_offset(isolation_level=1) == story.end_offset())
    story.note("writes on", story.produce(producer.batch(1), "operators"))
    story.note("opens again", story.end_offset(isolation_level=1) < story.end_offset())
    story.note("commits", story.end(producer, committed=True))
    settled(lambda: UNSTABLE if story.end_offset(isolation_level=1) < story.end_offset() else 0, (UNSTABLE,))
    story.note("nothing is open", story.mark(producer, committed=False))
    story.note("an operator commits", story.mark(producer, committed=True))


def _error_of_committed(story: Story, group: str) -> int:
    return story.committed(group)[0]


def tools(story: Story) -> None:
    """What operators are answered."""
    module = both_ways("DescribeProducersRequest").module
    asked = (module.TopicRequest(TOPIC, (0, 9)), module.TopicRequest("missing", (0,)))
    answer = story.ask("DescribeProducers", 0, topics=asked)
    story.note("partitions", [[each.error_code for each in topic.partitions] for topic in answer.topics])
    active = sorted(answer.topics[0].partitions[0].active_producers, key=lambda each: each.producer_id)
    story.note("producers", [(each.producer_epoch, each.last_sequence, each.last_timestamp > 0) for each in active])
    story.note("markers", [(each.coordinator_epoch, each.current_txn_start_offset) for each in active])
    producer = new_producer(story, "tools")
    story.add(producer, 3, (TOPIC, 1), (TOPIC, 0))
    answer = story.ask("DescribeTransactions", 0, transactional_ids=("ends", "ids", "tools", "nobody", ""))
    described = answer.transaction_states
    story.note("described", [(each.error_code, each.transaction_state) for each in described])
    story.note("times", [(each.transaction_timeout_ms, each.transaction_start_time_ms > 0) for each in described[:3]])
    topics = [[(topic.topic, sorted(topic.partitions)) for topic in each.topics] for each in described]
    story.note("topics", topics)
    for states in ((), ("Ongoing",), ("Asleep",), ("CompleteCommit", "Asleep")):
        answer = story.ask("ListTransactions", 1, state_filters=states, producer_id_filters=())
        listed = sorted((each.transactional_id, each.transaction_state) for each in answer.transaction_states)
        story.note(f"listed {states}", (answer.error_code, answer.unknown_state_filters, listed))
    for filters in (
        {"transactional_id_pattern": "t.*"},
        {"transactional_id_pattern": "("},
        {"duration_filter": 60_000},
    ):
        answer = story.ask("ListTransactions", 2, state_filters=("Ongoing",), producer_id_filters=(), **filters)
        listed = sorted(each.transactional_id for each in answer.transaction_states)
        story.note(f"listed {filters}", (answer.error_code, listed))


CHAPTERS = (producer_ids, refused_requests, ends, batches, fencing, offsets, tools, operators)


def tell(address: str, chapters: Sequence[Callable[[Story], None]]) -> dict[str, dict[str, object]]:
    """What the node answers, by chapter."""
    found = {}
    with told_to(address) as story:
        story.find_coordinators("readers", "ids")
        for chapter in chapters:
            story.outcomes = {}
            chapter(story)
            found[chapter.__name__] = story.outcomes
    return found
