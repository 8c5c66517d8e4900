"""Stories of static members of classic groups (KIP-345), on a coordinator alone. tests/sim/mutants/classic.py plants
bugs that they notice."""

from __future__ import annotations

from testbed.consumer_bytes import assigned, subscription
from tests.replication.classic_clients import ClassicClient, said, settle, synced
from tests.replication.classic_stories import world
from tests.replication.group_stories import Coordinator


def static_pair(coordinator: Coordinator, **options: bool) -> tuple[ClassicClient, ClassicClient]:
    first = ClassicClient(coordinator, "a", instance="i1", **options)  # type: ignore[arg-type]
    second = ClassicClient(coordinator, "b", instance="i2", **options)  # type: ignore[arg-type]
    settle(first, second)
    return first, second


def static_member_restarts_without_a_rebalance() -> None:
    coordinator = world()
    first, second = static_pair(coordinator)
    again = ClassicClient(coordinator, "c", instance="i2")
    answer = again.join()
    assert answer is not None and answer.generation == 1, "it keeps its place"
    assert again.member_id != second.member_id, "under an id of its own"
    assert again.sync() == second.assignment, "with what it had"
    first.heartbeat()
    assert said(second.heartbeat) == "FencedInstanceId", "the process before it is fenced"
    assert said(second.sync) == "FencedInstanceId"
    assert said(second.send_join) == "FencedInstanceId"


def static_leader_restarts() -> None:
    coordinator = world()
    first, second = static_pair(coordinator)
    again = ClassicClient(coordinator, "c", instance="i1")
    answer = again.join()
    assert answer is not None
    assert answer.leader == again.member_id and answer.skip_assignment, "it leads, and does not assign"
    assert len(answer.members) == 2, "it watches the topics of all"
    assert again.sync() == first.assignment
    older = ClassicClient(coordinator, "d", instance="i1", skips_assignment=False)
    answer = older.join()
    assert answer is not None
    assert answer.leader == again.member_id and answer.members == (), "an older client would assign if it led"
    assert older.sync() == first.assignment
    second.heartbeat()


def static_member_with_other_protocols_begins_a_rebalance() -> None:
    coordinator = world()
    both = {"range": b"", "sticky": b""}
    first = ClassicClient(coordinator, "a", instance="i1", protocols=both)
    second = ClassicClient(coordinator, "b", instance="i2", protocols=both)
    settle(first, second)
    again = ClassicClient(coordinator, "c", instance="i2", protocols={"sticky": b""})
    assert again.join() is None, "the group needs another protocol"
    assert said(first.heartbeat) == "RebalanceInProgress"


def static_member_that_is_away_keeps_its_place() -> None:
    coordinator = world()
    first = ClassicClient(coordinator, "a", instance="i1", rebalance_ms=5_000)
    second = ClassicClient(coordinator, "b", instance="i2", rebalance_ms=5_000, session_ms=30_000)
    settle(first, second)
    first.protocols = {"range": b"topics t u"}
    first.join()
    coordinator.pass_time(5_000)
    first.look()
    assert first.joined is not None
    assert len(first.joined.members) == 2, "its session has not timed out"
    first.sync()
    again = ClassicClient(coordinator, "c", instance="i2")
    again.join()
    assert again.sync() == f"2:{second.member_id}".encode(), "and it gets what was assigned to it meanwhile"


def instance_ids_outlive_the_coordinator() -> None:
    """Trap 15: after a change of the coordinator the static member would be a stranger, and cause a rebalance."""
    coordinator = world()
    first, second = static_pair(coordinator)
    again = ClassicClient(coordinator, "c", instance="i2")
    again.join()
    coordinator.fail_over()
    assert said(second.heartbeat) == "FencedInstanceId", "the replacement is recorded"
    assert again.sync() == second.assignment
    once_more = ClassicClient(coordinator, "d", instance="i2")
    answer = once_more.join()
    assert answer is not None and answer.generation == 1, "it keeps its place"
    first.heartbeat()


def static_member_restarts_before_it_confirms_what_it_gave_up() -> None:
    """Found by a random world: its next process has nothing to give up, and so never joins again. Unless it begins a
    rebalance itself, the leader never learns that the partitions are free, and they stay without an owner."""
    both = [("t", 0), ("t", 1)]

    def cooperative(owned: list[tuple[str, int]]) -> dict[str, bytes]:
        return {"cooperative-sticky": subscription(("t",), owned)}

    coordinator = world()
    first = ClassicClient(coordinator, "a", instance="i1", protocols=cooperative([]))
    first.assign = lambda joined: {first.member_id: assigned(both)}
    settle(first)
    first.protocols = cooperative(both)
    second = ClassicClient(coordinator, "b", protocols=cooperative([]))
    second.join()
    first.assign = lambda joined: {first.member_id: assigned(both[:1]), second.member_id: assigned([])}
    first.join()
    synced(first, second)
    assert first.assignment == assigned(both[:1]) and second.assignment == assigned([]), "the second one waits"
    coordinator.fail_over()
    again = ClassicClient(coordinator, "c", instance="i1", protocols=cooperative([]))
    assert again.join() is None, "what the process before it gave up is free now"
    assert said(second.heartbeat) == "RebalanceInProgress", "the second one may have it"
    again.assign = lambda joined: {again.member_id: assigned(both[:1]), second.member_id: assigned(both[1:])}
    second.join()
    synced(again, second)
    assert second.assignment == assigned(both[1:]), "it has an owner"
    once_more = ClassicClient(coordinator, "d", instance="i1", protocols=cooperative([]))
    assert once_more.join() is not None, "nothing is given up in this generation: it keeps its place"
    second.heartbeat()


def restarted_static_member_fences_requests_that_wait() -> None:
    coordinator = world()
    first, second = static_pair(coordinator)
    first.protocols = {"range": b"topics t u"}
    first.join()
    second.join()
    first.look()
    second.look()
    second.sync()
    again = ClassicClient(coordinator, "c", instance="i2")
    assert again.join() is None, "the leader may assign to the id that nobody has any more"
    second.look()
    assert type(second.error).__name__ == "FencedInstanceId", "no request is left without an answer"
    assert said(first.heartbeat) == "RebalanceInProgress"
