"""A story of transactions of version 2 (KIP-890), told to a node in frames of Kafka's protocol, as transaction_story.py
does with version 1: leaders add the partitions, and each end of a transaction gives its producer the next epoch.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.interop.transaction_story import (
    TOPIC,
    UNSTABLE,
    Producer,
    Story,
    new_producer,
    settled,
)
from tests.node.kafka_frames import both_ways
from tidelog.records import EndTxnMarker, control_batch
from tidelog.types import Millis, ProducerId

PRODUCE, COMMIT, END, INIT = 12, 5, 5, 5
"""The versions of clients that use version 2 of transactions."""

SHORT_MS = 100
"""A transaction that times out, where nodes look as often."""


def write(story: Story, producer: Producer, sequence: int = 0, *, index: int = 0) -> int:
    return story.produce(producer.batch(sequence), producer.name, PRODUCE, index)


def end(story: Story, producer: Producer, *, committed: bool) -> tuple[int, int, int]:
    """The error, how far the producer id and the epoch of the answer are from those of the producer; of a refusal, the
    producer id and the epoch themselves."""
    answers: list[Any] = []

    def attempt() -> int:
        answers.append(story.ask("EndTxn", END, **producer.fields, committed=committed))
        return int(answers[-1].error_code)

    code = settled(attempt)
    answer = answers[-1]
    if code:
        return code, answer.producer_id, answer.producer_epoch
    return code, answer.producer_id - producer.producer_id, answer.producer_epoch - producer.epoch


def state(story: Story, name: str) -> tuple[str, int]:
    """The state of a transactional id, and the number of partitions in its transaction."""
    (described,) = story.ask("DescribeTransactions", 0, transactional_ids=(name,)).transaction_states
    return described.transaction_state, sum(len(each.partitions) for each in described.topics)


def wait_until_complete(story: Story, name: str) -> None:
    settled(lambda: UNSTABLE if not state(story, name)[0].startswith("Complete") else 0, (UNSTABLE,))


# --- chapters -----------------------------------------------------------------------------------------------------


def announced(story: Story) -> None:
    """The feature, without which clients use version 1."""
    for version in (3, 4):
        answer = story.ask("ApiVersions", version, client_software_name="story", client_software_version="2")
        finalized = {each.name: (each.min_version_level, each.max_version_level) for each in answer.finalized_features}
        supported = {each.name: (each.min_version, each.max_version) for each in answer.supported_features}
        feature = "transaction.version"
        story.note(f"{version}: finalized", (finalized[feature], answer.finalized_features_epoch >= 0))
        story.note(f"{version}: supported", supported.get(feature))


def second_ends(story: Story) -> None:
    """Partitions are added by the first batch. Ends are repeated, in both directions, in the epoch that they ended."""
    producer = new_producer(story, "second-ends")
    begin = story.end_offset()
    for committed in (True, False, True):
        kind = f"{'commit' if committed else 'abort'} {producer.epoch}"
        for index in (0, 1):
            story.note(f"{kind}: writes {index}", write(story, producer, index=index))
        story.note(f"{kind}: is in", state(story, producer.name))
        story.note(f"{kind}: writes on", write(story, producer, 1))
        story.note(f"{kind}: repeats a batch", write(story, producer, 1))
        story.note(f"{kind}: ends", end(story, producer, committed=committed))
        story.note(f"{kind}: ends again", end(story, producer, committed=committed))
        story.note(f"{kind}: ends otherwise", end(story, producer, committed=not committed))
        story.note(f"{kind}: writes late", write(story, producer, 2))
        story.note(f"{kind}: writes late elsewhere", write(story, producer, 2, index=1))
        former, producer = producer, producer.at(producer.epoch + 1)
        for level in (0, 1):
            story.note(f"{kind}: end at level {level}", story.end_offset(isolation_level=level) - begin)
        if former.epoch:
            story.note(f"{kind}: a former end again", end(story, former.at(former.epoch - 1), committed=committed))


def nothing_is_open(story: Story) -> None:
    """An abort is accepted and raises the epoch: a client sends it when it does not know whether its write arrives."""
    producer = new_producer(story, "nothing")
    for turn in range(2):
        story.note(f"{turn}: commits nothing", end(story, producer, committed=True))
        story.note(f"{turn}: aborts nothing", end(story, producer, committed=False))
        story.note(f"{turn}: again", end(story, producer, committed=False))
        story.note(f"{turn}: commits it", end(story, producer, committed=True))
        story.note(f"{turn}: writes late", write(story, producer))
        producer = producer.at(producer.epoch + 1)
    story.note("writes", write(story, producer))
    story.note("commits", end(story, producer, committed=True))
    producer = producer.at(producer.epoch + 1)
    story.note("aborts after a commit", end(story, producer, committed=False))
    wait_until_complete(story, producer.name)
    story.note("state", state(story, producer.name))


def second_refusals(story: Story) -> None:
    """By a producer that is fenced, that nobody knows, or whose batches no correct client sends."""
    former = new_producer(story, "second-refused")
    producer = new_producer(story, "second-refused")
    unknown = Producer("nobody", producer.producer_id, 0)
    other = Producer(producer.name, ProducerId(99_999), producer.epoch)
    for who, each in (("fenced", former), ("unknown", unknown), ("another", other)):
        story.note(f"{who} writes", write(story, each))
        story.note(f"{who} commits offsets", story.commit(each, "readers", COMMIT))
        for committed in (True, False):
            story.note(f"{who} ends {committed}", end(story, each, committed=committed))
    later = producer.at(producer.epoch + 1)
    story.note("a later epoch writes", write(story, later))
    story.note("a later epoch ends", end(story, later, committed=True))
    story.note("begins in the middle", write(story, producer, 5, index=1))
    story.note("is added all the same", state(story, producer.name))
    story.note("writes", write(story, producer))
    story.note("leaves out a sequence number", write(story, producer, 5))
    plain = producer.batch(1, transactional=False)
    story.note("writes plainly", story.produce(plain, producer.name, PRODUCE))
    marker = control_batch(
        EndTxnMarker(committed=True, coordinator_epoch=0),
        timestamp=Millis(1_700_000_000_000),
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
    )
    story.note("writes a marker", story.produce(bytes(marker), producer.name, PRODUCE))
    story.note("is still open", end(story, producer, committed=False))


def second_offsets(story: Story) -> None:
    """Offsets of a group, whose partition the request adds; and by the request of version 1, which adds none."""
    producer = new_producer(story, "second-offsets")
    for committed in (False, True):
        group = f"second-{committed}"
        story.find_coordinators(group)
        story.note(f"{group}: are not added by version 4", story.commit(producer, group, 4))
        story.note(f"{group}: by a member", story.commit(producer, group, COMMIT, generation_id=5, member_id="nobody"))
        story.note(f"{group}: are added", story.commit(producer, group, COMMIT))
        story.note(f"{group}: again", story.commit(producer, group, COMMIT))
        story.note(f"{group}: by version 4", story.commit(producer, group, 4))
        story.note(f"{group}: for a missing topic", story.commit(producer, group, COMMIT, topic="missing"))
        story.note(f"{group}: is in", state(story, producer.name))
        story.note(f"{group}: is pending", story.committed(group))
        story.note(f"{group}: ends", end(story, producer, committed=committed))
        settled(partial(_error_of_committed, story, group), (UNSTABLE,))
        story.note(f"{group}: has", story.committed(group))
        story.note(f"{group}: late offsets", story.commit(producer, group, COMMIT))
        producer = producer.at(producer.epoch + 1)


def _error_of_committed(story: Story, group: str) -> int:
    return story.committed(group)[0]


def second_fencing(story: Story) -> None:
    """A newer producer while a transaction is open, and one that continues after an error."""
    former = new_producer(story, "second-fencing")
    story.note("writes", write(story, former))
    newer = new_producer(story, former.name)
    story.note("epochs apart", newer.epoch - former.epoch)
    story.note("the former one writes", write(story, former, 1))
    story.note("the former one writes elsewhere", write(story, former, index=1))
    story.note("the former one commits", end(story, former, committed=True))
    story.note("the former one aborts", end(story, former, committed=False))
    story.note("the newer one writes", write(story, newer))
    story.note("the newer one commits", end(story, newer, committed=True))
    having = {"producer_id": int(newer.producer_id), "producer_epoch": newer.epoch}
    story.note("continues without the answer", story.init(newer.name, INIT, **having)[0])
    continued = newer.at(newer.epoch + 1)
    having["producer_epoch"] = continued.epoch
    code, epoch = story.init(newer.name, INIT, **having)
    story.note("continues", (code, epoch - newer.epoch))
    story.note("the epoch before writes", write(story, continued))
    story.note("writes in its epoch", write(story, continued.at(epoch)))
    story.note("ends in its epoch", end(story, continued.at(epoch), committed=True))


def timeouts(story: Story) -> None:
    """The coordinator aborts a transaction, and its producer finds out by one request or another."""
    for how in ("writes", "commits", "aborts"):
        name = f"timed-out-{how}"
        code, epoch = story.init(name, INIT, SHORT_MS)
        producer = Producer(name, story.producer_id, epoch)
        story.note(f"{how}: begins", (code, write(story, producer)))
        wait_until_complete(story, name)
        story.note(f"{how}: state", state(story, name))
        if how == "writes":
            story.note("writes late", write(story, producer, 1))
            story.note("writes late elsewhere", write(story, producer, index=1))
        else:
            story.note(how, end(story, producer, committed=how == "commits"))
        story.note(f"{how}: aborts", end(story, producer, committed=False))
        producer = producer.at(producer.epoch + 1)
        story.note(f"{how}: next", write(story, producer))
        wait_until_complete(story, name)  # it times out, too


def both_versions(story: Story) -> None:
    """A client changes from version 1 to 2 and back, as one does whose cluster is raised or whose program is
    replaced."""
    producer = new_producer(story, "both")
    story.note("1: adds", story.add(producer))
    story.note("1: writes", story.produce(producer.batch(), producer.name, 11))
    story.note("1: commits", story.end(producer, committed=True, version=4))
    wait_until_complete(story, producer.name)  # before its marker, a batch of the same epoch would enter what has ended
    story.note("2: writes in the same epoch", write(story, producer, 1))
    story.note("2: commits", end(story, producer, committed=True))
    producer = producer.at(producer.epoch + 1)
    story.note("2: writes again", write(story, producer))
    story.note("1: ends what 2 has begun", story.end(producer, committed=True, version=4))
    story.note("1: ends it again", story.end(producer, committed=True, version=4))
    story.note("1: adds again", story.add(producer))
    story.note("1: writes again", story.produce(producer.batch(1), producer.name, 11))
    story.note("2: writes elsewhere", write(story, producer, index=1))
    story.note("2: ends what 1 has begun", end(story, producer, committed=False))
    producer = producer.at(producer.epoch + 1)
    story.note("1: writes unannounced", story.produce(producer.batch(), producer.name, 11))
    story.note("state", state(story, producer.name))
    newer = new_producer(story, producer.name)
    story.note("epochs apart", newer.epoch - producer.epoch)
    for version in (4, END):
        answer = story.ask("EndTxn", version, **producer.fields, committed=True)
        story.note(f"{version}: a fenced one ends", answer.error_code)


def second_tools(story: Story) -> None:
    """What operators see: a marker has the epoch of the next transaction, and no sequence number."""
    settled(partial(_is_unstable, story), (UNSTABLE,))
    producer = new_producer(story, "second-tools")
    write(story, producer)
    write(story, producer, index=1)
    story.note("ongoing", _active(story, producer))
    end(story, producer, committed=True)
    wait_until_complete(story, producer.name)
    story.note("complete", _active(story, producer))
    (described,) = story.ask("DescribeTransactions", 0, transactional_ids=(producer.name,)).transaction_states
    story.note("described", (described.producer_epoch - producer.epoch, described.transaction_state))
    producer = producer.at(producer.epoch + 1)
    write(story, producer)
    story.note("an operator aborts a former epoch", story.mark(producer.at(producer.epoch - 1), committed=False))
    story.note("an operator aborts", story.mark(producer, committed=False))
    settled(partial(_is_unstable, story), (UNSTABLE,))
    story.note("the coordinator knows nothing of it", state(story, producer.name))
    story.note("aborts", end(story, producer, committed=False))


def _is_unstable(story: Story) -> int:
    return UNSTABLE if story.end_offset(isolation_level=1) < story.end_offset() else 0


def _active(story: Story, producer: Producer) -> list[tuple[int, int, bool]]:
    module = both_ways("DescribeProducersRequest").module
    answer = story.ask("DescribeProducers", 0, topics=(module.TopicRequest(TOPIC, (0, 1)),))
    return [
        (each.producer_epoch - producer.epoch, each.last_sequence, each.current_txn_start_offset >= 0)
        for partition in sorted(answer.topics[0].partitions, key=lambda each: each.partition_index)
        for each in partition.active_producers
        if each.producer_id == producer.producer_id
    ]


def second_missing(story: Story) -> None:
    """Nothing is added for a partition that does not exist."""
    producer = new_producer(story, "second-missing")
    story.note("a missing partition", write(story, producer, index=9))
    story.note("writes without its id", story.produce(producer.batch(), None, PRODUCE))
    story.note("state", state(story, producer.name))


CHAPTERS = (
    announced,
    second_ends,
    nothing_is_open,
    second_refusals,
    second_offsets,
    second_fencing,
    timeouts,
    both_versions,
    second_tools,
    second_missing,
)
