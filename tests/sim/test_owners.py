"""Each rule of owners, of readings of members and of exactly-once results fails if it is broken, and only then."""

from __future__ import annotations

import pytest

from testbed.sim.commit_attempts import Place
from testbed.sim.exactly_once import ExactlyOnce, result_of, source_of
from testbed.sim.ledger import Ledger, Violation
from tests.sim.ledger_book import Book
from tests.sim.member_readings import MemberReadings
from tests.sim.owners import Owners
from tidelog.records.v2.record import Record
from tidelog.types import Millis, Offset

FIRST, SECOND = ("orders", 0), ("orders", 1)


class Group:
    """Owners beside a log that a test writes."""

    def __init__(self) -> None:
        self.logged: dict[str, set[Place]] = {}
        self.owners = Owners("g", logged=self.logged.get)

    def has(self, member: str, *places: Place) -> None:
        self.logged[member] = set(places)


@pytest.fixture
def group() -> Group:
    return Group()


def test_a_partition_moves_between_owners(group: Group) -> None:
    group.has("a", FIRST, SECOND)
    group.owners.assigned("a", [FIRST, SECOND])
    group.owners.revoked("a", [FIRST])
    group.has("a", SECOND)
    group.has("b", FIRST)
    group.owners.assigned("b", [FIRST])
    assert list(group.owners.missing([FIRST, SECOND], ["a", "b"])) == []
    group.owners.ended("a")
    assert list(group.owners.missing([FIRST, SECOND], ["b"])) == ["orders-1 of group g is owned by no member"]


def test_a_fenced_member_may_still_own(group: Group) -> None:
    group.has("a", FIRST)
    group.owners.assigned("a", [FIRST])
    del group.logged["a"]
    group.has("b", FIRST)
    group.owners.assigned("b", [FIRST])
    assert list(group.owners.missing([FIRST], ["a", "b"])) == ["orders-0 of group g is owned by ['a', 'b']"]


def test_an_owner_that_confirmed_a_revocation_too_early(group: Group) -> None:
    group.has("a", FIRST)
    group.owners.assigned("a", [FIRST])
    group.has("a")
    group.has("b", FIRST)
    with pytest.raises(Violation, match="orders-0 is assigned to b while a owns it and is not fenced"):
        group.owners.assigned("b", [FIRST])


def test_what_the_log_does_not_say(group: Group) -> None:
    group.has("a", FIRST)
    with pytest.raises(Violation, match="orders-1 is assigned to a, but not in its coordinator's log"):
        group.owners.assigned("a", [SECOND])
    group.owners.assigned("a", [FIRST])
    with pytest.raises(Violation, match="orders-0 is assigned to a a second time"):
        group.owners.assigned("a", [FIRST])
    with pytest.raises(Violation, match="a gives up orders-1, which it does not own"):
        group.owners.revoked("a", [SECOND])


class Member:
    """A member that reads a ledger of five records, assigned when `committed` was committed."""

    def __init__(self, committed: int = -1) -> None:
        self.ledger = Book().put(*[(None, b"%d" % number) for number in range(5)]).ledger
        self.committed = committed
        self.readings = MemberReadings(
            "a",
            ledger=lambda place: self.ledger,
            committed=lambda place: self.committed,
            decided=False,
            keep=lambda reading: reading,
        )
        self.readings.assigned([FIRST])

    def got(self, *offsets: int) -> None:
        for offset in offsets:
            self.readings.got(FIRST, Record(Offset(offset), Millis(0), None, b"%d" % offset))


def test_a_member_reads_from_the_committed_offset() -> None:
    member = Member(2)
    assert member.readings.may_commit(FIRST, 2) == 2
    member.got(2, 3)
    assert member.readings.may_commit(FIRST, 4) == 4
    assert member.readings.may_commit(FIRST, 5) == 4
    member.readings.revoked([FIRST])
    with pytest.raises(Violation, match="a was given offset 4 of orders-0, which it does not own"):
        member.got(4)


def test_a_member_that_was_removed_may_begin_below_what_its_successor_has_committed() -> None:
    member = Member(1)
    member.committed = 4
    member.got(1, 2, 3)
    assert member.readings.may_commit(FIRST, 5) == 4


def test_a_member_whose_commit_told_of_a_loss_reads_again_from_the_committed_offset() -> None:
    member = Member(1)
    member.got(1, 2, 3)
    member.readings.continues(FIRST, 4)
    assert member.readings.may_commit(FIRST, 4) == 4, "the member does not know of a loss, and was given all before"
    member.readings.continues(FIRST, 1)
    assert member.readings.may_commit(FIRST, 4) == 1, "what it has discarded it may not commit"
    with pytest.raises(Violation, match="without being given offset 1"):
        member.got(2)


@pytest.mark.parametrize(("committed", "offsets"), [(3, (2,)), (-1, (1,)), (1, (2,)), (0, (0, 2)), (0, (0, 1, 0))])
def test_skipped_and_repeated_records_of_an_assignment(committed: int, offsets: tuple[int, ...]) -> None:
    member = Member(committed)
    with pytest.raises(Violation, match=r"begins orders-0 at offset|without being given offset|was given offset"):
        member.got(*offsets)


def source_and_target() -> tuple[Ledger, Ledger, ExactlyOnce]:
    source = Book().put((None, b"x"), (None, b"y")).ledger
    source.name = "orders-0"
    target = Book().ledger
    target.name = "events-0"
    return source, target, ExactlyOnce("pipeline")


def put(target: Ledger, offset: int, worker: str) -> int:
    at = target.end
    target.values[at] = result_of("orders", 0, offset, worker)
    target.end += 1
    return at


def test_one_result_of_each_record() -> None:
    source, target, pipeline = source_and_target()
    pipeline.decided(target, [put(target, 0, "w/1")])
    assert pipeline.missing([source]) == ["pipeline: orders-0@1 has no result"]
    with pytest.raises(Violation, match="orders-0@1 has no result"):
        pipeline.judge([source], [target])
    target.aborted.add(put(target, 1, "w/2"))
    pipeline.decided(target, [put(target, 1, "w/3")])
    pipeline.judge([source], [target])


def test_two_results_of_a_record() -> None:
    _, target, pipeline = source_and_target()
    pipeline.decided(target, [put(target, 0, "w/1")])
    with pytest.raises(Violation, match="orders-0@0 has two committed results, at events-0@0 and at events-0@1"):
        pipeline.decided(target, [put(target, 0, "w/2")])


def test_a_result_of_no_source() -> None:
    source, target, pipeline = source_and_target()
    pipeline.decided(target, [put(target, offset, f"w/{offset}") for offset in range(3)])
    with pytest.raises(Violation, match="results of records that are no decided sources"):
        pipeline.judge([source], [target])


def test_the_source_of_a_result() -> None:
    assert source_of(result_of("a-b.c", 3, 17, "w-1/2")) == ("a-b.c-3", 17)
    assert source_of(b"of something else") is None
    assert source_of(None) is None
