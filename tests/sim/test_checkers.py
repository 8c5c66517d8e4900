"""Each checker fails if its rule is broken, and only then: over hand-made logs, without a cluster."""

from __future__ import annotations

import re
import string
from dataclasses import dataclass, field
from uuid import UUID

import pytest

from testbed.sim.checkers import Checkers, ReplicaView
from testbed.sim.clock import WORLD_BEGAN_MS, SimClock
from testbed.sim.ledger import Violation
from testbed.sim.workload import Fate, Sent, Transaction
from tidelog.errors import NotLeaderOrFollower, RequestTimedOut
from tidelog.records import build_batch
from tidelog.records.v2.control import EndTxnMarker, control_batch
from tidelog.records.v2.record import Record
from tidelog.types import Durability, LeaderEpoch, Millis, Offset, PartitionIndex, PartitionKey, TopicId

TOPIC = TopicId(UUID(int=7))
KEY = PartitionKey(TOPIC, PartitionIndex(0))


def batch(offset: int, value: bytes, epoch: int = 0) -> bytes:
    return build_batch([Record(Offset(offset), Millis(0), None, value)], base_offset=offset, leader_epoch=epoch)


@dataclass
class FakeLog:
    """A log of one-record batches."""

    batches: list[bytes] = field(default_factory=list)
    high_watermark: Offset = Offset(0)
    log_start_offset: Offset = Offset(0)
    durable_less: int = 0

    @property
    def local_log_start_offset(self) -> Offset:
        return self.log_start_offset

    @property
    def log_end_offset(self) -> Offset:
        return Offset(len(self.batches))

    @property
    def durable_offset(self) -> Offset:
        return Offset(len(self.batches) - self.durable_less)

    @property
    def size(self) -> int:
        return sum(map(len, self.batches))

    def add(self, *values: bytes, epoch: int = 0) -> FakeLog:
        for value in values:
            self.batches.append(batch(len(self.batches), value, epoch))
        return self

    def commit(self, offset: int) -> FakeLog:
        self.high_watermark = Offset(offset)
        return self


class Cluster:
    """Nodes a, b, c with one replica each, as the checkers see them."""

    def __init__(self) -> None:
        self.logs = {name: FakeLog() for name in "abc"}
        self.members = ["a", "b", "c"]
        self.epochs = dict.fromkeys("abc", 0)
        self.leader = "a"
        self.run_numbers = dict.fromkeys("abc", 1)
        self.now_us = 0
        self.clock = SimClock(self)  # type: ignore[arg-type]
        self.checkers = Checkers(
            read=lambda node, log, start, end: b"".join(log.batches[start:end]),  # type: ignore[attr-defined]
            members=lambda key: [(name, self.view(name)) for name in self.members],
            note=lambda words: None,
            configs=lambda key: {"retention.ms": str(WORLD_BEGAN_MS + 60_000)},  # the records are from the year 1970
            now_us=lambda: self.now_us,
            wall_ms=lambda node, since_us: self.clock.latest_ms(since_us),
        )
        for letter in string.ascii_lowercase:
            self.checkers.sending(Sent("t", 0, letter.encode(), -1))

    def view(self, name: str) -> ReplicaView:
        epoch = LeaderEpoch(self.epochs[name])
        return ReplicaView(KEY, "t-0", self.logs[name], epoch, name == self.leader, Durability.FSYNC)

    def look(self, *names: str) -> None:
        for name in names:
            self.checkers.look(name, f"{name}.{self.run_numbers[name]}", [self.view(name)])

    def committed(self, *values: bytes) -> Cluster:
        """Add these values to every log as committed and observed records."""
        for name in "abc":
            self.logs[name].add(*values)
        self.look("a", "b", "c")
        for name in "abc":
            self.logs[name].commit(len(values))
        self.look("a", "b", "c")
        return self


@pytest.fixture
def cluster() -> Cluster:
    return Cluster().committed(b"x", b"y")


def test_an_honest_cluster_passes(cluster: Cluster) -> None:
    for name in "abc":
        cluster.logs[name].add(b"z")
    cluster.logs["a"].commit(3)
    cluster.look("a", "b", "c")
    cluster.epochs["b"], cluster.leader = 1, "b"
    cluster.look("b")
    sent = Sent("t", 0, b"z", -1, Fate.ACKNOWLEDGED, 2, TOPIC.bytes)
    cluster.checkers.sending(sent)
    cluster.checkers._answered(sent)
    cluster.checkers.all_sent_are_accounted_for()


def test_two_leaders_of_one_epoch(cluster: Cluster) -> None:
    cluster.leader = "b"
    with pytest.raises(Violation, match=re.escape("epoch 0 is led by a.1 and by b.1")):
        cluster.look("b")


def test_one_epoch_in_two_incarnations_of_a_node(cluster: Cluster) -> None:
    cluster.run_numbers["a"] = 2
    cluster.checkers.node_began("a")
    with pytest.raises(Violation, match=re.escape("epoch 0 is led by a.1 and by a.2")):
        cluster.look("a")


def test_an_epoch_or_watermark_that_decreases(cluster: Cluster) -> None:
    cluster.logs["b"].commit(1)
    with pytest.raises(Violation, match="high watermark went back from 2 to 1"):
        cluster.look("b")
    cluster.epochs["c"] = 4
    cluster.look("c")
    cluster.epochs["c"] = 3
    with pytest.raises(Violation, match="leader epoch went back from 4 to 3"):
        cluster.look("c")


def test_other_bytes_below_the_watermark(cluster: Cluster) -> None:
    cluster.checkers.node_began("b")
    cluster.logs["b"] = FakeLog().add(b"x", b"other").commit(2)
    with pytest.raises(Violation, match=r"offset 1 .* is not what was committed"):
        cluster.look("b")


def test_a_hole_below_the_watermark(cluster: Cluster) -> None:
    cluster.checkers.node_began("b")
    cluster.logs["b"] = FakeLog([b"", batch(1, b"y")]).commit(2)
    with pytest.raises(Violation, match="offset 0 is missing"):
        cluster.look("b")


def test_a_commit_that_a_member_does_not_hold(cluster: Cluster) -> None:
    for name in "abc":
        cluster.logs[name].add(b"z")
    cluster.logs["c"].durable_less = 1
    cluster.logs["a"].commit(3)
    with pytest.raises(Violation, match="c is in the in-sync set and holds offsets below 2"):
        cluster.look("a")


def test_a_member_that_lacks_records_committed_without_it(cluster: Cluster) -> None:
    cluster.members = ["a", "b"]
    for name in "ab":
        cluster.logs[name].add(b"z")
    cluster.logs["a"].commit(3)
    cluster.look("a", "b")
    cluster.members = ["a", "b", "c"]
    with pytest.raises(Violation, match="c is in the in-sync set and holds offsets below 2"):
        cluster.checkers.sets_changed([KEY])


def test_a_leader_that_begins_without_committed_records(cluster: Cluster) -> None:
    cluster.logs["b"].batches.pop()
    cluster.epochs["b"], cluster.leader, cluster.members = 1, "b", ["b"]
    with pytest.raises(Violation, match=re.escape("b.1 leads t-0 in epoch 1 with its log ending at 1")):
        cluster.look("b")


def test_a_follower_that_knows_of_commits_before_any_leader(cluster: Cluster) -> None:
    cluster.logs["b"].add(b"z").commit(3)
    with pytest.raises(Violation, match="no leader committed beyond 2"):
        cluster.look("b")


def test_an_acknowledgement_of_uncommitted_records(cluster: Cluster) -> None:
    for offset, value in ((2, b"z"), (1, b"z")):
        sent = Sent("t", 0, value, -1, Fate.ACKNOWLEDGED, offset, TOPIC.bytes)
        with pytest.raises(Violation, match=f"offset {offset}"):
            cluster.checkers._answered(sent)


def test_a_reader_that_receives_uncommitted_records(cluster: Cluster) -> None:
    ledger = cluster.checkers.ledgers[KEY]
    cluster.checkers.reading(ledger, position=1).got(Record(Offset(1), Millis(0), None, b"y"))
    for offset, value in ((2, b"z"), (1, b"z")):
        with pytest.raises(Violation, match=f"offset {offset}"):
            cluster.checkers.reading(ledger).got(Record(Offset(offset), Millis(0), None, value))


def test_rejected_records_are_absent_and_no_record_is_duplicated(cluster: Cluster) -> None:
    cluster.checkers.sent.append(Sent("t", 0, b"x", -1, Fate.REFUSED, -1, TOPIC.bytes))
    with pytest.raises(Violation, match="refused as not written"):
        cluster.checkers.all_sent_are_accounted_for()
    cluster.checkers.sent.clear()
    for name in "abc":
        cluster.logs[name].add(b"x")
    cluster.logs["a"].commit(3)
    with pytest.raises(Violation, match="is committed at 0 and at 2"):
        cluster.look("a")


def test_a_record_that_no_client_sent(cluster: Cluster) -> None:
    for name in "abc":
        cluster.logs[name].add(b"from nowhere")
    cluster.logs["a"].commit(3)
    with pytest.raises(Violation, match="no client sent it"):
        cluster.look("a")


def test_a_log_that_loses_its_beginning_without_leave(cluster: Cluster) -> None:
    cluster.logs["b"].log_start_offset = Offset(1)
    with pytest.raises(Violation, match="what was below 1 is gone, and nothing allows that"):
        cluster.look("b")
    cluster.checkers.ledgers[KEY].deletions.accepted = 1
    cluster.checkers.node_began("b")
    with pytest.raises(Violation, match="its log starts at 1, but that of no leader was above 0"):
        cluster.look("b")
    cluster.logs["a"].log_start_offset = Offset(1)
    cluster.look("a")
    cluster.checkers.node_began("b")
    cluster.look("b")
    cluster.logs["c"].log_start_offset = Offset(3)
    with pytest.raises(Violation, match="the committed log ends at 2"):
        cluster.look("c")


def test_records_that_come_back_after_their_deletion_was_acknowledged(cluster: Cluster) -> None:
    deletions = cluster.checkers.ledgers[KEY].deletions
    first, second = deletions.begin(1), deletions.begin(-1)
    for name in "ab":
        cluster.logs[name].log_start_offset = Offset(1)
        cluster.look(name)
    with pytest.raises(Violation, match="t-0 on c: its log starts at 0, but the deletion of everything below 1 was"):
        cluster.checkers.deleted(KEY, first, 1)
    cluster.logs["c"].log_start_offset = Offset(1)
    cluster.checkers.deleted(KEY, first, 1)
    cluster.members.remove("c")
    cluster.logs["c"] = FakeLog(cluster.logs["c"].batches).commit(2)
    cluster.look("c")
    cluster.leader, cluster.epochs["b"] = "b", 2
    cluster.look("b")
    cluster.leader, cluster.epochs["c"] = "c", 1
    cluster.look("c")  # cut off: it does not know that b leads in the next epoch
    cluster.epochs["c"] = 3
    with pytest.raises(Violation, match="on c: its log starts at 0"):
        cluster.look("c")
    deletions.fail(second, NotLeaderOrFollower("moved"), 2)
    assert (deletions.accepted, deletions.is_settled) == (1, True)
    deletions.fail(deletions.begin(-1), RequestTimedOut("not all"), 2)
    assert deletions.accepted == 2, "some leader may have done it"


def test_records_expire_by_the_clock_at_their_deletion(cluster: Cluster) -> None:
    """The clock was an hour ahead at one time, which allows only the removal of records then. If the removal is
    observed late because the log was out of use, it is still distinguished from a later one."""
    out_of_use = cluster.view("c")._replace(log=None)
    cluster.checkers.look("c", "c.1", [out_of_use])
    cluster.now_us = 1_000_000
    cluster.clock.jump(3_600_000)
    cluster.now_us = 2_000_000
    cluster.clock.jump(-3_600_000)
    cluster.now_us = 3_000_000
    cluster.logs["b"].log_start_offset = Offset(1)
    with pytest.raises(Violation, match="what was below 1 is gone, and nothing allows that"):
        cluster.look("b")
    cluster.logs["c"].log_start_offset = Offset(1)
    cluster.look("c")


def test_an_unclean_election_suspends_the_checks_of_committed_records(cluster: Cluster) -> None:
    cluster.checkers.may_have_lost(KEY)
    cluster.logs["b"] = FakeLog().add(b"other")
    cluster.epochs["b"], cluster.leader = 1, "b"
    cluster.look("b")
    cluster.run_numbers["b"] = 2
    cluster.checkers.node_began("b")
    with pytest.raises(Violation, match=re.escape("epoch 1 is led by b.1 and by b.2")):
        cluster.look("b")


def test_an_unclean_leader_brings_what_an_earlier_set_has_committed(cluster: Cluster) -> None:
    """Two unclean elections: the first leader lacks y, the second knows it as committed. Alone in its set, the second
    may not commit more than that."""
    cluster.checkers._set_sizes[KEY, -1] = 1, 2
    cluster.logs["a"] = FakeLog().add(b"x").commit(1)
    for leader, epoch in ("a", LeaderEpoch(1)), ("b", LeaderEpoch(2)):
        cluster.checkers.led_uncleanly(KEY, epoch)
        cluster.leader, cluster.members, cluster.epochs[leader] = leader, [leader], epoch
        cluster.look(leader)
    assert cluster.checkers.ledgers[KEY].end == 2
    cluster.logs["b"].add(b"z").commit(3)
    with pytest.raises(Violation, match="1 are in sync, 2 must be, and everything below 3 is committed"):
        cluster.look("b")


def test_a_set_that_is_too_small_commits(cluster: Cluster) -> None:
    cluster.checkers._set_sizes[KEY, -1] = 1, 2
    for name in "abc":
        cluster.logs[name].add(b"z")
    cluster.logs["a"].commit(3)
    with pytest.raises(Violation, match="1 are in sync, 2 must be, and everything below 3 is committed"):
        cluster.look("a")


def test_a_leader_that_commits_and_resigns_at_once(cluster: Cluster) -> None:
    for name in "abc":
        cluster.logs[name].add(b"z")
    cluster.look("a", "b", "c")
    cluster.logs["a"].commit(3)
    cluster.checkers.look("a", "a.1", [cluster.view("a")._replace(log=None, leads=False)])
    assert cluster.checkers.ledgers[KEY].end == 3


def test_metadata_that_too_few_hold() -> None:
    cluster = Cluster()
    cluster.checkers._voters = 3
    log = FakeLog().add(b"a").commit(1)
    view = ReplicaView(KEY, "__cluster_metadata-0", log, LeaderEpoch(0), leads=True, durability=Durability.FSYNC)
    with pytest.raises(Violation, match="commits everything below 1, which only a of 3 voters hold"):
        cluster.checkers.look("a", "a.1", [view])


def metadata_of(log: FakeLog, epoch: int = 0, *, leads: bool = False) -> ReplicaView:
    return ReplicaView(KEY, "__cluster_metadata-0", log, LeaderEpoch(epoch), leads, Durability.FSYNC)


def test_logs_of_metadata_that_do_not_match() -> None:
    """Raft's log matching: at one offset of one epoch there is one record, committed or not."""
    checkers = Cluster().checkers
    checkers.look("a", "a.1", [metadata_of(FakeLog().add(b"a", epoch=2))])
    checkers.look("b", "b.1", [metadata_of(FakeLog().add(b"b", epoch=1))])
    with pytest.raises(Violation, match="offset 0 of epoch 2 has other bytes on another node"):
        checkers.look("c", "c.1", [metadata_of(FakeLog().add(b"c", epoch=2))])


def test_metadata_of_an_older_epoch_that_are_committed_by_count() -> None:
    checkers = Cluster().checkers
    log = FakeLog().add(b"a", epoch=1).commit(1)
    with pytest.raises(Violation, match="as leader of epoch 3 it commits records of an older epoch, 1"):
        checkers.look("a", "a.1", [metadata_of(log, 3, leads=True)])


def test_an_end_that_a_leader_cannot_know(cluster: Cluster) -> None:
    """Two records were committed when epoch 1 began; a third one is now."""
    cluster.epochs["b"], cluster.leader = 1, "b"
    cluster.look("b")
    for name in "abc":
        cluster.logs[name].add(b"z")
    cluster.logs["b"].commit(3)
    cluster.look("a", "b", "c")
    ledger = cluster.checkers.ledgers[KEY]
    cluster.checkers.reported_end(ledger, 1, 2, asked_at=2)
    cluster.checkers.reported_end(ledger, 1, 3, asked_at=3)
    for offset, asked_at in ((1, 0), (4, 0), (2, 3)):
        with pytest.raises(Violation, match=f"the leader of epoch 1 reports the end {offset}, but everything below 3"):
            cluster.checkers.reported_end(ledger, 1, offset, asked_at)
    cluster.checkers.reported_end(ledger, 0, 2, asked_at=3)  # it does not know the next leader


def test_a_watermark_above_the_end(cluster: Cluster) -> None:
    cluster.logs["a"].commit(3)
    with pytest.raises(Violation, match="high watermark 3 above log end 2"):
        cluster.look("a")


def test_an_acknowledgement_from_nowhere(cluster: Cluster) -> None:
    with pytest.raises(Violation, match="nothing was ever committed in that partition"):
        cluster.checkers._answered(Sent("t", 1, b"z", -1, Fate.ACKNOWLEDGED, 0, TOPIC.bytes))


def test_an_acknowledged_record_missing_at_the_end(cluster: Cluster) -> None:
    cluster.checkers.sent.append(Sent("t", 0, b"z", -1, Fate.ACKNOWLEDGED, 2, TOPIC.bytes))
    with pytest.raises(Violation, match="acknowledged and lost"):
        cluster.checkers.all_sent_are_accounted_for()


def test_a_transaction_that_is_decided_otherwise(cluster: Cluster) -> None:
    """The coordinator aborted it; the committed marker commits it."""
    transaction = Transaction(7, 0, committed=False)
    cluster.checkers.sending(Sent("t", 0, b"of a transaction", -1, transaction=transaction))
    record = Record(Offset(2), Millis(0), None, b"of a transaction")
    sent = build_batch(
        [record], base_offset=2, leader_epoch=0, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    marker = control_batch(
        EndTxnMarker(committed=True, coordinator_epoch=0), timestamp=0, base_offset=3, producer_id=7, producer_epoch=0
    )
    for name in "abc":
        cluster.logs[name].batches += [sent, marker]
    cluster.logs["a"].commit(4)
    with pytest.raises(Violation, match="has a marker that contradicts its coordinator"):
        cluster.look("a")
