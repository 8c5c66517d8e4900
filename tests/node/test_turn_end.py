"""Work at the end of a turn of the loop: once, for all that requested it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from node.replicas.turn_end import TurnEnd
from replication.partition.leader import PartitionLeader
from replication.partition.leader_events import Appended, LeaderEvent
from storage.append_info import Origin
from tests.node.wires import Cluster, batch
from tidelog.errors import LeadershipLost, TidelogError
from tidelog.types import NO_LEADER_EPOCH, Acks, Millis


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster(partitions=2)
    for index in range(2):
        cluster.set(index, leader=1)
    yield cluster
    cluster.loop.raise_defects()
    cluster.close()


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[LeaderEvent]:
    """The events of all leaders."""
    seen: list[LeaderEvent] = []
    handle = PartitionLeader.handle

    def noting(self: PartitionLeader, event: LeaderEvent) -> object:
        seen.append(event)
        return handle(self, event)

    monkeypatch.setattr(PartitionLeader, "handle", noting)
    return seen


class Outcomes(list[TidelogError | None]):
    def __call__(self, _info: object, error: TidelogError | None) -> None:
        self.append(error)


def append(cluster: Cluster, outcomes: Outcomes, *, index: int = 0, acks: Acks = Acks.ALL) -> None:
    leader = cluster.partition(1, index).leading_in(NO_LEADER_EPOCH)
    leader.produce(batch(b"a"), origin=Origin.CLIENT, acks=acks, deadline=Millis(1 << 60), done=outcomes)


def appended(events: list[LeaderEvent]) -> list[int]:
    return [event.log_end for event in events if isinstance(event, Appended)]


def test_the_appends_of_a_turn_are_completed_together(cluster: Cluster, events: list[LeaderEvent]) -> None:
    outcomes = Outcomes()
    for index in (0, 1, 0, 0):
        append(cluster, outcomes, index=index)
    assert cluster.log(1).log_end_offset == 3, "each entry is appended at once"
    assert (appended(events), outcomes) == ([], [])
    cluster.run(0)
    assert appended(events) == [3, 1], "once for each replica"
    cluster.run(1)
    assert outcomes == [None] * 4


def test_a_position_that_is_asked_for_is_that_after_the_appends(cluster: Cluster, events: list[LeaderEvent]) -> None:
    append(cluster, Outcomes())
    leader = cluster.partition(1).leading_in(NO_LEADER_EPOCH)
    assert leader.epoch_end(leader.core.leader_epoch).end_offset == 1
    assert appended(events) == [1]
    cluster.run(0)
    assert appended(events) == [1], "the end of the turn finds nothing more"


@pytest.mark.parametrize("acks", [Acks.LEADER, Acks.ALL])
def test_a_directory_that_fails_in_the_turn_loses_what_waits(cluster: Cluster, acks: Acks) -> None:
    outcomes = Outcomes()
    append(cluster, outcomes, acks=acks)
    cluster.directory(1).fail("appending", OSError("broken"))
    assert [type(outcome) for outcome in outcomes] == [LeadershipLost]
    cluster.run(1)
    assert len(outcomes) == 1, "answered once"


def test_a_leadership_that_ends_in_the_turn_answers_its_entries(cluster: Cluster) -> None:
    waits, ignored = Outcomes(), Outcomes()
    append(cluster, waits)
    append(cluster, ignored, acks=Acks.NONE)
    cluster.set(leader=2)
    cluster.run(1)
    assert ([type(outcome) for outcome in waits], ignored) == ([LeadershipLost], [None])


def test_a_defect_does_not_keep_the_others_waiting() -> None:
    soon: list[Callable[[], None]] = []
    done: list[str] = []

    def breaks() -> None:
        raise AssertionError("a defect")

    turn = TurnEnd(soon.append)
    for work in (lambda: done.append("a"), breaks, lambda: done.append("b")):
        turn.add(work)
    assert len(soon) == 1, "one callback for all"
    with pytest.raises(AssertionError, match="a defect"):
        soon.pop()()
    soon.pop()()
    assert (done, soon) == (["a", "b"], [])
