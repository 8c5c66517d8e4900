"""append-as-leader.txt and message-format-and-validation.txt through whole nodes: which entries are rejected before the
log is used, and topics with an older message.format."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from uuid import UUID

import pytest

from tests.node.led_partitions import led, of
from tests.node.wires import Cluster, batch
from tests.records.reference import iter_records
from tidelog.errors import (
    InvalidRecord,
    InvalidRequiredAcks,
    InvalidTimestamp,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    UnknownTopicId,
    UnsupportedForMessageFormat,
)
from tidelog.records import build_batch, build_message_set, iter_batches
from tidelog.types import Codec, NodeId, TopicId


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with led() as cluster:
        yield cluster


def test_each_refusal_before_the_log_has_its_error_and_leaves_the_others_alone(cluster: Cluster) -> None:
    """appendToLocalLog catches for each partition: an exception is an answer, not the end of the request."""
    assert [a.error.code for a in cluster.produce(1, batch(b"a"), acks=7)] == [InvalidRequiredAcks.code]
    assert [a.error.code for a in cluster.produce(2, batch(b"a"))] == [NotLeaderOrFollower.code]
    unknown = cluster.produce(1, batch(b"a"), topic=TopicId(UUID(int=999)))
    assert [a.error.code for a in unknown] == [UnknownTopicId.code]
    bad = bytearray(batch(b"b"))
    bad[-1] ^= 1
    answers = cluster.produce(1, batch(b"a"), bytes(bad), batch(b"c"))
    assert [(a.error.code != 0, a.base_offset) for a in answers] == [(False, 0), (True, -1), (False, 1)]
    assert (answers[1].log_append_time_ms, answers[1].log_start_offset) == (-1, 0), "UnknownLogAppendInfo"


def test_too_few_in_sync_is_refused_before_the_append(cluster: Cluster) -> None:
    """acks=-1 and fewer in sync than min.insync.replicas."""
    cluster.kill(3)
    cluster.set(isr=(NodeId(1), NodeId(2)), min_insync=3)
    assert [a.error.code for a in cluster.produce(1, batch(b"a"))] == [NotEnoughReplicas.code]
    assert cluster.log(1).log_end_offset == 0


@pytest.mark.parametrize("magic", [0, 1])
def test_a_topic_of_an_older_format_is_replicated_and_its_leader_may_change(magic: int) -> None:
    """Its bytes contain no epoch: followers get epochs from the answers to their fetches."""
    with led(message_format=f"v{magic}", segment_bytes="400") as cluster:
        for i in range(6):
            codec = (Codec.NONE, Codec.GZIP, Codec.LZ4)[i % 3]
            sent = (build_batch(of(b"a%d" % i, b"b"), codec), build_message_set(of(b"a%d" % i, b"b"), magic, codec))[
                i % 2
            ]
            [answer] = cluster.produce(1, sent)
            assert (answer.error.code, answer.base_offset) == (0, 2 * i)
        cluster.set(leader=2)
        [answer] = cluster.produce(2, build_batch(of(b"last")))
        assert (answer.error.code, answer.base_offset, answer.leader_epoch) == (0, 12, 2)
        cluster.run(1)
        logs = [cluster.log(node) for node in (1, 2, 3)]
        assert cluster.contents(1) == cluster.contents(2) == cluster.contents(3)
        assert {found.magic for found in iter_batches(cluster.contents(3))} == {magic}
        assert [record.offset for record in iter_records(cluster.contents(3))] == list(range(13))
        assert logs[0].epochs.entries == logs[1].epochs.entries == logs[2].epochs.entries
        assert [(entry.epoch, entry.start_offset) for entry in logs[2].epochs.entries] == [(1, 0), (2, 12)]
        fetched = cluster.fetch(2, 3)
        assert next(iter_records(fetched.records)).offset == 2, (
            "a wrapper comes whole, a reader drops what it did not ask for"
        )


def test_what_the_format_cannot_contain_is_rejected_by_name() -> None:
    with_headers = [of(b"a")[0]._replace(headers=(("h", b"1"),))]
    with led(message_format="v1") as cluster:
        [answer] = cluster.produce(1, build_batch(with_headers))
    assert (answer.error.code, answer.error.written) == (UnsupportedForMessageFormat.code, 1)


def test_refused_records_are_named_one_by_one() -> None:
    """KIP-467: which records, and why."""
    keyless = [of(b"a")[0], of(b"a", b"b", key=None)[1]]
    with led(cleanup_policy="compact", message_timestamp_before_max_ms="1000") as cluster:
        [answer] = cluster.produce(1, build_batch(keyless))
        assert answer.error.code == InvalidRecord.code
        assert [(each.index, "key" in each.message) for each in answer.record_errors] == [(1, True)]
        [answer] = cluster.produce(1, build_batch(of(b"a", b"b", timestamp=5)))
        assert answer.error.code == InvalidTimestamp.code
        assert [each.index for each in answer.record_errors] == [0, 1]


# --- records that take time to check -------------------------------------------------------------------------------


def large(*values: bytes, codec: Codec = Codec.LZ4) -> bytes:
    """A batch that is worth being checked elsewhere."""
    noise = random.Random(1).randbytes(20_000)
    return build_batch(of(*(value + noise for value in values)), codec)


def test_compressed_records_are_checked_elsewhere_and_keep_their_turn(cluster: Cluster) -> None:
    """The loop continues meanwhile, for other streams; later entries of their own stream wait."""
    inspectors = cluster.machines[1].inspectors
    inspectors.holding = True
    task = cluster.append(1, batch(b"a"), large(b"b", b"c"), batch(b"d"))
    cluster.run(0.1)
    assert cluster.log(1).log_end_offset == 1
    assert [a.base_offset for a in cluster.produce(1, batch(b"of another stream"))] == [1]
    inspectors.release()
    answers = sorted(cluster.wait(task).partitions, key=lambda answer: answer.batch_id)
    assert [(a.error.code, a.base_offset) for a in answers] == [(0, 0), (0, 2), (0, 4)]
    found = [record.value or b"" for record in iter_records(cluster.contents(3))]
    assert [value[:1] for value in found] == [b"a", b"o", b"b", b"c", b"d"]


def test_a_leader_replaced_during_validation_appends_nothing(cluster: Cluster) -> None:
    inspectors = cluster.machines[1].inspectors
    inspectors.holding = True
    task = cluster.append(1, large(b"b"))
    cluster.set(leader=2)
    inspectors.release()
    [answer] = cluster.wait(task).partitions
    assert answer.error.code == NotLeaderOrFollower.code
    assert cluster.log(2).log_end_offset == 0


def test_settings_that_change_meanwhile_count(cluster: Cluster) -> None:
    """What was found out by other rules is worth nothing."""
    inspectors = cluster.machines[1].inspectors
    inspectors.holding = True
    keyless = build_batch([of(b"x" * 9_000, key=None)[0]._replace(value=random.Random(1).randbytes(20_000))], Codec.LZ4)
    task = cluster.append(1, keyless)
    log = cluster.log(1)
    log.reconfigure(replace(log.config, compact=True))
    inspectors.release()
    [answer] = cluster.wait(task).partitions
    assert answer.error.code == InvalidRecord.code


def test_batches_rejected_by_an_inspector_are_counted() -> None:
    with led(max_message_bytes="10000") as cluster:
        damaged = bytearray(large(b"b"))
        damaged[-1] ^= 1
        answers = cluster.produce(1, large(b"b"), bytes(damaged), batch(b"a"))
        assert [a.error.name for a in answers] == ["MESSAGE_TOO_LARGE", "MESSAGE_TOO_LARGE", ""]
        assert cluster.log(1).bytes_rejected == 2 * len(large(b"b"))
    with led() as cluster:
        answers = cluster.produce(1, bytes(damaged), batch(b"a"))
        assert [(a.error.name, a.base_offset) for a in answers] == [("CORRUPT_MESSAGE", -1), ("", 0)]
