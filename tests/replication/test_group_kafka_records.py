"""The folders of Kafka's brokers: their logs of groups load, and the coordinator answers with Kafka's offsets."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from replication.coordination.coordinator_machine import Instant
from replication.coordination.group_records import OffsetCommitKey, OffsetCommitValue
from replication.coordination.group_requests import ListGroups, NamedPartition, OffsetFetch, OffsetFetchAnswer
from tests.conformance.kafka_directories import PARTITIONS
from tests.replication.kafka_records import Entry, Marker, entries, loaded
from tidelog.types import Millis, Offset, ProducerId

LOGS = [each for each in PARTITIONS if each[1].startswith("__consumer_offsets")]
NOW = Instant(Millis(0), Millis(1_795_264_500_000))


class Committed(NamedTuple):
    """A committed offset of a log, None for a deletion, and whether it counts: it is in no transaction, or in one that
    was committed."""

    key: OffsetCommitKey
    value: OffsetCommitValue | None
    counts: bool


def commits(directory: str, partition: str) -> list[Committed]:
    """The commits in the order of the log, found the slow way."""
    log = list(entries(directory, partition))
    found = []
    for at, (_, producer, entry) in enumerate(log):
        if isinstance(entry, Marker) or not isinstance(entry.key, OffsetCommitKey):
            continue
        assert isinstance(entry.value, OffsetCommitValue | None)
        found.append(Committed(entry.key, entry.value, producer is None or _end(log[at:], producer.producer_id)))
    return found


def _end(log: list[Entry], producer_id: ProducerId) -> bool:
    """Whether the next marker of the producer commits. Its epoch may be above that of the records (KIP-890)."""
    ends = (
        entry.committed
        for _, producer, entry in log
        if isinstance(entry, Marker) and producer is not None and producer.producer_id == producer_id
    )
    return next(ends, False)


def expected_offsets(directory: str, partition: str) -> dict[OffsetCommitKey, OffsetCommitValue]:
    """The last commit of each partition that counts."""
    last = {each.key: each.value for each in commits(directory, partition) if each.counts}
    return {key: value for key, value in last.items() if value is not None}


@pytest.mark.parametrize(("directory", "partition"), LOGS)
def test_the_offsets_of_kafkas_groups_are_served(directory: str, partition: str) -> None:
    machine, expected = loaded(directory, partition), expected_offsets(directory, partition)
    assert expected
    groups = {key.group for key in expected}
    for group in sorted(groups):
        answer = machine.handle(OffsetFetch(group, "", -1, None, require_stable=True), NOW).answer
        assert isinstance(answer, OffsetFetchAnswer)
        assert {
            OffsetCommitKey(group, each.topic, each.partition): (each.offset, each.leader_epoch, each.metadata)
            for each in answer.partitions
        } == {
            key: (value.offset, value.leader_epoch, value.metadata)
            for key, value in expected.items()
            if key.group == group
        }
    listed = machine.handle(ListGroups(), NOW).answer
    assert not isinstance(listed, Exception)
    assert {group.group_id for group in listed.groups} == groups


@pytest.mark.parametrize(("directory", "partition"), LOGS)
def test_transactions_that_were_aborted_leave_no_offset(directory: str, partition: str) -> None:
    machine, expected = loaded(directory, partition), expected_offsets(directory, partition)
    for key, value, counts in commits(directory, partition):
        if not counts and value is not None:
            asked = (NamedPartition(key.topic, key.partition),)
            answer = machine.handle(OffsetFetch(key.group, "", -1, asked), NOW).answer
            assert isinstance(answer, OffsetFetchAnswer)
            served = expected.get(key)
            assert answer.partitions[0].offset == (Offset(-1) if served is None else served.offset)
            assert value != served


def test_the_logs_have_aborted_transactions() -> None:
    assert any(not each.counts for log in LOGS for each in commits(*log))
