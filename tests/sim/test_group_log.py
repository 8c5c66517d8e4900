"""Each rule of a group's log fails if it is broken, and only then: over hand-made records, without a cluster."""

from __future__ import annotations

import re
from uuid import UUID

import pytest

from replication.coordination import group_records as records
from replication.coordination.coordinator_record import CoordinatorRecord
from replication.coordination.group_records import TopicPartitions
from testbed.consumer_bytes import assigned, subscription
from testbed.sim.commit_attempts import CommitAttempts, Place
from testbed.sim.group_log import GroupLog
from testbed.sim.ledger import Violation
from tidelog.types import Millis, Offset, PartitionIndex

TOPIC = UUID(int=7)
ORDERS = ("orders", 0)


class Log:
    """A group log that a test appends to."""

    def __init__(self) -> None:
        self.attempts = CommitAttempts()
        self.now_us = 0
        self.exists = True
        self.log = GroupLog(
            "__consumer_offsets-0",
            self.attempts,
            topic_name={TOPIC: "orders"}.get,
            exists=lambda place: self.exists,
            now_us=lambda: self.now_us,
        )
        self._end = 0

    def add(self, *batch: records.GroupRecord, producer: int | None = None) -> None:
        self.log.replayed(self._end, batch, producer)
        self._end += len(batch)

    def join(self, member: str, *partitions: int, epoch: int = 1, revoking: tuple[int, ...] = ()) -> None:
        """A member with these partitions, as of an epoch."""
        metadata = records.ConsumerGroupMemberMetadataValue(None, None, "c", "h", ("orders",), None, 1000, None)
        self.add(CoordinatorRecord(records.ConsumerGroupMemberMetadataKey("g", member), metadata))
        self.has(member, *partitions, epoch=epoch, revoking=revoking)

    def has(self, member: str, *partitions: int, epoch: int = 1, revoking: tuple[int, ...] = ()) -> None:
        value = records.ConsumerGroupCurrentMemberAssignmentValue(
            epoch, epoch - 1, 0, listed(*partitions), listed(*revoking)
        )
        self.add(CoordinatorRecord(records.ConsumerGroupCurrentMemberAssignmentKey("g", member), value))

    def fence(self, member: str) -> None:
        self.add(
            CoordinatorRecord(records.ConsumerGroupCurrentMemberAssignmentKey("g", member), None),
            CoordinatorRecord(records.ConsumerGroupMemberMetadataKey("g", member), None),
        )

    def commit(
        self,
        member: str,
        offset: int,
        *,
        producer: int | None = None,
        given_to: int | None = None,
        resets: bool = False,
        text: str | None = None,
        epoch: int = -1,
    ) -> None:
        identity = self.attempts.sending(
            "g",
            ORDERS,
            offset,
            client=member or "tool",
            member_id=member,
            member_epoch=epoch,
            given_to=given_to,
            resets=resets,
        )
        self.value(offset, identity if text is None else text, producer)

    def value(self, offset: int, text: str, producer: int | None = None) -> None:
        key = records.OffsetCommitKey("g", "orders", PartitionIndex(0))
        value = records.OffsetCommitValue(Offset(offset), text, Millis(0))
        self.add(CoordinatorRecord(key, value), producer=producer)

    def delete(self, place: Place = ORDERS) -> None:
        self.add(CoordinatorRecord(records.OffsetCommitKey("g", place[0], PartitionIndex(place[1])), None))


def listed(*partitions: int) -> tuple[TopicPartitions, ...]:
    return (TopicPartitions(TOPIC, tuple(map(PartitionIndex, partitions))),) if partitions else ()


@pytest.fixture
def log() -> Log:
    return Log()


def test_a_partition_moves_from_one_member_to_the_next(log: Log) -> None:
    log.join("a", 0, 1)
    log.commit("a", 5, given_to=5)
    log.has("a", 1, epoch=2)
    log.join("b", 0, epoch=2)
    log.commit("b", 6, given_to=6)
    log.fence("a")
    log.has("b", 0, 1, epoch=3)
    assert log.log.committed("g", ORDERS) == 6


def test_two_owners_of_a_partition(log: Log) -> None:
    log.join("a", 0)
    with pytest.raises(Violation, match="orders-0 belongs to two members of group g, a and b"):
        log.join("b", 0)


def test_a_partition_that_is_not_given_up_yet(log: Log) -> None:
    log.join("a", 1, revoking=(0,))
    with pytest.raises(Violation, match="orders-0 belongs to two members"):
        log.join("b", 0, epoch=2)


def test_epochs_that_go_back(log: Log) -> None:
    log.join("a", 0, epoch=4)
    with pytest.raises(Violation, match="epoch of member a of group g goes back from 4 to 3"):
        log.has("a", 0, epoch=3)
    key = records.ConsumerGroupMetadataKey("g")
    log.add(CoordinatorRecord(key, records.ConsumerGroupMetadataValue(7)))
    with pytest.raises(Violation, match="epoch of group g goes back from 7 to 6"):
        log.add(CoordinatorRecord(key, records.ConsumerGroupMetadataValue(6)))
    with pytest.raises(Violation, match=re.escape("group g is deleted with its members ['a']")):
        log.add(CoordinatorRecord(key, None))


def test_a_member_that_was_fenced_may_start_from_an_older_epoch(log: Log) -> None:
    log.join("a", 0, epoch=4)
    log.fence("a")
    log.join("a", 0, epoch=1)


def test_a_commit_of_a_fenced_member(log: Log) -> None:
    log.join("a", 0)
    log.fence("a")
    with pytest.raises(Violation, match=r"offset 5 of orders-0 in group g is committed by a/0, which is fenced"):
        log.commit("a", 5)


def test_a_commit_for_a_partition_of_another_member(log: Log) -> None:
    log.join("a", 1)
    log.join("b", 0)
    with pytest.raises(Violation, match="is committed by a/0, but b owns the partition"):
        log.commit("a", 5)


def test_a_commit_by_no_member_beside_members(log: Log) -> None:
    log.commit("", 5)
    log.join("b", 0)
    with pytest.raises(Violation, match=re.escape("is committed by tool/1, no member, beside the members ['b']")):
        log.commit("", 6)


def test_a_commit_that_no_client_sent(log: Log) -> None:
    with pytest.raises(Violation, match="is committed, and no client sent it"):
        log.value(5, "someone/9")


def test_a_commit_beyond_what_was_read(log: Log) -> None:
    log.join("a", 0)
    with pytest.raises(Violation, match="reader a/0 was given all below 4"):
        log.commit("a", 5, given_to=4)


def test_an_offset_that_goes_back(log: Log) -> None:
    log.join("a", 0)
    log.commit("a", 5)
    log.commit("a", 3, resets=True)
    log.commit("a", 5)
    with pytest.raises(Violation, match="committed offset of orders-0 in group g goes back from 5 to 4"):
        log.commit("a", 4)


def test_offsets_of_a_transaction_count_with_its_marker(log: Log) -> None:
    log.join("a", 0)
    log.commit("a", 5, producer=70)
    assert log.log.committed("g", ORDERS) == -1
    log.log.ended(70, committed=False)
    log.commit("a", 6, producer=70)
    log.log.ended(70, committed=True)
    assert log.log.committed("g", ORDERS) == 6


def test_an_offset_behind_the_transactions_own_stays(log: Log) -> None:
    log.join("a", 0)
    log.commit("a", 5, producer=70)
    log.commit("a", 6)
    log.log.ended(70, committed=True)
    assert log.log.committed("g", ORDERS) == 6


def test_an_offset_that_is_deleted(log: Log) -> None:
    log.commit("", 5)
    log.exists = False
    log.delete()
    log.exists = True
    log.commit("", 5)
    with pytest.raises(Violation, match="orders-0 in group g, 5, is deleted, and nobody asked for that"):
        log.delete()
    log.attempts.may_delete("g")
    log.delete()
    assert log.log.committed("g", ORDERS) == -1


def test_what_was_committed_at_some_time(log: Log) -> None:
    log.now_us = 10
    log.commit("", 5)
    log.now_us = 20
    log.commit("", 6)
    was = log.log.was_committed
    assert was("g", ORDERS, -1, 5)
    assert was("g", ORDERS, 5, 15)
    assert was("g", ORDERS, 5, 20)
    assert was("g", ORDERS, 6, 25)
    assert not was("g", ORDERS, 5, 21)
    assert not was("g", ORDERS, -1, 15)


# --- groups that change their protocol --------------------------------------------------------------------------------


def classic_record(generation: int, **members: set[Place]) -> records.GroupRecord:
    found = tuple(
        records.MemberMetadata(name, "c", "h", 1000, subscription(("orders",)), assigned(places))
        for name, places in members.items()
    )
    value = records.GroupMetadataValue("consumer", generation, "range", None, found, Millis(0))
    return CoordinatorRecord(records.GroupMetadataKey("g"), value)


def taken_over(member: str, *partitions: int, epoch: int) -> list[records.GroupRecord]:
    """A member of the classic protocol in a consumer group."""
    said = records.ClassicMemberMetadata(1000, (records.ClassicProtocol("range", b""),))
    metadata = records.ConsumerGroupMemberMetadataValue(None, None, "c", "h", ("orders",), None, 1000, None, said)
    value = records.ConsumerGroupCurrentMemberAssignmentValue(epoch, epoch, 0, listed(*partitions), ())
    return [
        CoordinatorRecord(records.ConsumerGroupMemberMetadataKey("g", member), metadata),
        CoordinatorRecord(records.ConsumerGroupMetadataKey("g"), records.ConsumerGroupMetadataValue(epoch)),
        CoordinatorRecord(records.ConsumerGroupCurrentMemberAssignmentKey("g", member), value),
    ]


def left(*members: str) -> list[records.GroupRecord]:
    """The end of a consumer group."""
    found: list[records.GroupRecord] = []
    for member in members:
        found.append(CoordinatorRecord(records.ConsumerGroupCurrentMemberAssignmentKey("g", member), None))
        found.append(CoordinatorRecord(records.ConsumerGroupMemberMetadataKey("g", member), None))
    return [*found, CoordinatorRecord(records.ConsumerGroupMetadataKey("g"), None)]


NO_CLASSIC: records.GroupRecord = CoordinatorRecord(records.GroupMetadataKey("g"), None)


def test_a_group_changes_its_protocol_and_back(log: Log) -> None:
    log.add(classic_record(3, a={("orders", 0)}, b={("orders", 1)}))
    log.add(NO_CLASSIC, *taken_over("a", 0, epoch=3), *taken_over("b", 1, epoch=3))
    log.commit("a", 5, epoch=3)
    log.add(*left("a", "b"), classic_record(3, a={("orders", 0)}, b={("orders", 1)}))
    log.commit("a", 6, epoch=3)


def test_an_upgrade_that_loses_what_a_member_had(log: Log) -> None:
    log.add(classic_record(3, a={("orders", 0), ("orders", 1)}))
    with pytest.raises(Violation, match=re.escape("a loses [('orders', 1)] in generation 3")):
        log.add(NO_CLASSIC, *taken_over("a", 0, epoch=3))


def test_an_upgrade_that_goes_back(log: Log) -> None:
    log.add(classic_record(3, a={("orders", 0)}))
    with pytest.raises(Violation, match="a goes from generation 3 to epoch 2"):
        log.add(NO_CLASSIC, *taken_over("a", 0, epoch=2))


def test_a_downgrade_that_loses_what_a_member_had(log: Log) -> None:
    log.add(*taken_over("a", 0, epoch=3))
    with pytest.raises(Violation, match=re.escape("a loses [('orders', 0)] in generation 3")):
        log.add(*left("a"), classic_record(3, a=set()))


def test_a_downgrade_that_goes_back(log: Log) -> None:
    log.add(*taken_over("a", 0, epoch=3))
    with pytest.raises(Violation, match="a goes from epoch 3 to generation 2"):
        log.add(*left("a"), classic_record(2, a={("orders", 0)}))


def test_a_commit_of_a_classic_member_in_another_epoch(log: Log) -> None:
    log.add(*taken_over("a", 0, epoch=3))
    with pytest.raises(Violation, match="which is fenced: generation 2 of 3"):
        log.commit("a", 5, epoch=2)
