"""Stories of classic groups, on a coordinator alone. tests/sim/mutants/classic.py plants bugs that they notice."""

from __future__ import annotations

from replication.coordination.classic_requests import LeavingMember
from replication.coordination.group_requests import OffsetCommit, OffsetToCommit, TxnOffsetCommit
from replication.coordination.groups.classic_members import INVITED_MAX
from replication.coordination.groups.group_config import GroupConfig
from tests.replication.classic_clients import ClassicClient, leave, said, settle, synced
from tests.replication.group_stories import Coordinator
from tidelog.errors import UnknownMemberId
from tidelog.types import Offset, PartitionIndex, ProducerId

MINUTE_MS = 60_000
COMMIT = (OffsetToCommit("t", PartitionIndex(0), Offset(7)),)


def world(**config: int) -> Coordinator:
    return Coordinator({"t": 4}, config=GroupConfig(**config))  # type: ignore[arg-type]


def pair(coordinator: Coordinator) -> tuple[ClassicClient, ClassicClient]:
    """A stable group of two; the first one leads."""
    first, second = ClassicClient(coordinator, "a"), ClassicClient(coordinator, "b")
    settle(first, second)
    assert first.is_leader, "the first member leads"
    return first, second


# --- the first generation ---------------------------------------------------------------------------------------------


def members_share_a_generation() -> None:
    coordinator = world()
    first, second = ClassicClient(coordinator, "a"), ClassicClient(coordinator, "b")
    assert (first.join(), second.join()) == (None, None), "both wait for each other"
    coordinator.pass_time(6_000)
    first.look()
    second.look()
    assert first.joined is not None and second.joined is not None, "who has waited is answered"
    assert first.generation == second.generation == 1, "one generation"
    assert first.joined.leader == second.joined.leader == first.member_id, "one leader"
    assert [each.member_id for each in first.joined.members] == [first.member_id, second.member_id], "it learns all"
    assert [each.metadata for each in first.joined.members] == [b"topics t", b"topics t"], "with their metadata"
    assert second.joined.members == (), "others learn nothing of each other"
    assert second.sync() is None, "nothing is assigned yet"
    assert first.sync() == f"1:{first.member_id}".encode(), "the leader has its own assignment"
    second.look()
    assert second.assignment == f"1:{second.member_id}".encode(), "each gets its own"
    assert second.sync() == second.assignment, "and gets it again"
    first.heartbeat()
    second.heartbeat()
    assert coordinator.group().state == "Stable"


def new_group_waits_for_further_members() -> None:
    coordinator = world()
    first, second, third = (ClassicClient(coordinator, name, rebalance_ms=7_000) for name in "abc")
    first.join()
    coordinator.pass_time(2_999)
    second.join()
    coordinator.pass_time(2_999)
    assert coordinator.group().state == "PreparingRebalance", "a newcomer prolongs the wait"
    third.join()
    coordinator.pass_time(1_001)
    for client in (first, second, third):
        client.look()
    assert first.generation == -1, "prolonged once more, up to the rebalance timeout"
    coordinator.pass_time(1)
    first.look()
    assert first.joined is not None, "not beyond the rebalance timeout"
    assert len(first.joined.members) == 3


def member_without_id_is_given_one() -> None:
    coordinator = world()
    client = ClassicClient(coordinator, "a")
    answer = client.send_join()
    assert answer is not None and type(answer.error).__name__ == "MemberIdRequired", "it is only told its id"
    assert coordinator.group().members == (), "and is no member yet"
    coordinator.pass_time(9_999)
    assert client.send_join() is None, "with the id it joins"
    late = ClassicClient(coordinator, "b")
    late.send_join()
    coordinator.pass_time(10_000)
    assert said(late.send_join) == "UnknownMemberId", "an id that nobody used is forgotten"


def invited_member_is_waited_for() -> None:
    coordinator = world()
    first, second = pair(coordinator)
    third = ClassicClient(coordinator, "c")
    third.send_join()
    first.protocols = {"range": b"topics t u"}
    first.join()
    second.join()
    assert coordinator.group().state == "PreparingRebalance", "the third one has an id and will come"
    coordinator.pass_time(10_000)
    first.look()
    assert first.generation == 2, "it did not come"


# --- protocols --------------------------------------------------------------------------------------------------------


def protocol_is_one_that_all_support() -> None:
    coordinator = world()
    first = ClassicClient(coordinator, "a", protocols={"sticky": b"1", "range": b"2"})
    second = ClassicClient(coordinator, "b", protocols={"range": b"3"})
    third = ClassicClient(coordinator, "c", protocols={"sticky": b"4", "range": b"5"})
    settle(first, second, third)
    assert first.joined is not None
    assert first.joined.protocol == "range", "two prefer another one, which the third does not support"
    assert [each.metadata for each in first.joined.members] == [b"2", b"3", b"5"], "metadata of that protocol"


def most_members_decide_on_the_protocol() -> None:
    coordinator = world()
    both = {"range": b"", "sticky": b""}
    clients = [ClassicClient(coordinator, "a", protocols=both)]
    clients += [ClassicClient(coordinator, name, protocols=dict(reversed(both.items()))) for name in "bc"]
    settle(*clients)
    assert clients[0].joined is not None
    assert clients[0].joined.protocol == "sticky", "two of three prefer it"


def member_of_another_kind_is_refused() -> None:
    coordinator = world()
    pair(coordinator)
    connect = ClassicClient(coordinator, "c", protocol_type="connect")
    assert said(connect.send_join) == "InconsistentGroupProtocol", "another protocol type"
    sticky = ClassicClient(coordinator, "d", protocols={"sticky": b""})
    assert said(sticky.send_join) == "InconsistentGroupProtocol", "no common protocol"
    assert said(ClassicClient(coordinator, "e", group_id="h", protocols={}).send_join) == "InconsistentGroupProtocol"
    assert len(coordinator.group().members) == 2, "the group is as before"


def workers_of_connect_form_a_group() -> None:
    coordinator = world()
    protocols = {"sessioned": b"url a", "compatible": b"url a"}
    clients = [ClassicClient(coordinator, name, protocol_type="connect", protocols=protocols) for name in "ab"]
    settle(*clients)
    assert clients[1].joined is not None
    assert (clients[1].joined.protocol_type, clients[1].joined.protocol) == ("connect", "sessioned")


# --- rebalances -------------------------------------------------------------------------------------------------------


def third_member_joins() -> None:
    coordinator = world()
    first, second = pair(coordinator)
    third = ClassicClient(coordinator, "c")
    assert third.join() is None, "it waits until the others have joined again"
    assert said(first.heartbeat) == "RebalanceInProgress", "members are told to join again"
    assert said(second.sync) == "RebalanceInProgress"
    first.join()
    assert coordinator.group().state == "PreparingRebalance", "one member is missing"
    second.join()
    synced(first, second, third)
    assert {each.generation for each in (first, second, third)} == {2}
    assert len({each.assignment for each in (first, second, third)}) == 3, "each has an assignment of its own"


def member_that_does_not_join_again_is_removed() -> None:
    coordinator = world()
    first, second = pair(coordinator)
    third = ClassicClient(coordinator, "c")
    third.join()
    first.join()
    for _ in range(59):
        coordinator.pass_time(1_000)
        assert said(second.heartbeat) == "RebalanceInProgress", "it is alive, but does not join"
    assert coordinator.group().state == "PreparingRebalance", "the rebalance timeout is not over"
    coordinator.pass_time(1_000)
    first.look()
    assert first.joined is not None, "the others go on"
    assert len(first.joined.members) == 2
    assert said(second.heartbeat) == "UnknownMemberId", "it is removed"
    assert "b-1" in coordinator.notices[-1] and "did not join again" in coordinator.notices[-1]


def member_that_never_syncs_is_removed() -> None:
    """Trap 19: its partitions would be nobody's."""
    coordinator = world()
    first, second = ClassicClient(coordinator, "a"), ClassicClient(coordinator, "b")
    first.join()
    second.join()
    coordinator.pass_time(6_000)
    first.look()
    second.look()
    first.sync()
    for _ in range(60):
        coordinator.pass_time(1_000)
        said(second.heartbeat)
        said(first.heartbeat)
    assert said(second.heartbeat) == "UnknownMemberId", "it never asked for its assignment"
    assert said(first.heartbeat) == "RebalanceInProgress", "the other one takes over"


def leader_that_never_assigns_is_removed() -> None:
    coordinator = world()
    first, second = ClassicClient(coordinator, "a"), ClassicClient(coordinator, "b")
    first.join()
    second.join()
    coordinator.pass_time(6_000)
    first.look()
    second.look()
    second.sync()
    for _ in range(60):
        coordinator.pass_time(1_000)
        said(first.heartbeat)
    second.look()
    assert type(second.error).__name__ == "RebalanceInProgress", "nobody waits for it for ever"
    second.join()
    synced(second)
    assert second.is_leader and second.assignment == f"2:{second.member_id}".encode()


def members_outlive_a_leader_that_is_gone() -> None:
    """Their sessions began with its own, and do not run while they wait for it."""
    coordinator = world()
    first, second, third = (ClassicClient(coordinator, name) for name in "abc")
    for client in (first, second, third):
        client.join()
    coordinator.pass_time(6_000)
    for client in (first, second, third):
        client.look()
    assert (second.sync(), third.sync()) == (None, None), "the leader has not assigned"
    coordinator.pass_time(10_000)
    for client in (second, third):
        client.look()
        assert type(client.error).__name__ == "RebalanceInProgress", "the session of the leader is over"
    assert [each.member_id for each in coordinator.group().members] == [second.member_id, third.member_id]
    second.join()
    third.join()
    synced(second, third)
    assert third.assignment == f"2:{third.member_id}".encode()


def silent_member_is_removed() -> None:
    coordinator = world()
    first, second = pair(coordinator)
    for _ in range(9):
        coordinator.pass_time(1_000)
        first.heartbeat()
    coordinator.pass_time(1_000)
    assert said(first.heartbeat) == "RebalanceInProgress", "the session of the other one has timed out"
    assert said(second.heartbeat) == "UnknownMemberId"
    assert "sent no heartbeat" in coordinator.notices[-1]
    first.join()
    synced(first)
    assert first.assignment == f"2:{first.member_id}".encode()


def member_that_waits_needs_no_heartbeat() -> None:
    coordinator = world()
    first, second = pair(coordinator)
    third = ClassicClient(coordinator, "c")
    third.join()
    first.join()
    for _ in range(30):
        coordinator.pass_time(1_000)
        said(second.heartbeat)
    second.join()
    first.look()
    assert first.generation == 2, "its session does not run while its JoinGroup waits"
    second.look()
    assert second.sync() is None
    for _ in range(30):
        coordinator.pass_time(1_000)
        first.heartbeat()
        third.look()
        third.heartbeat()
    first.sync()
    second.look()
    assert second.assignment is not None, "nor while its SyncGroup waits"
    coordinator.pass_time(9_999)
    second.heartbeat()


def new_member_whose_client_is_gone_is_removed() -> None:
    coordinator = world()
    first, second = pair(coordinator)
    gone = ClassicClient(coordinator, "c", rebalance_ms=20 * MINUTE_MS)
    gone.join()
    first.join()
    for _ in range(59):
        coordinator.pass_time(5_000)
        assert said(second.heartbeat) == "RebalanceInProgress", "it is busy, for as long as the longest timeout"
    gone.look()
    assert gone.error is None, "a new member may wait for long"
    coordinator.pass_time(5_000)
    gone.look()
    assert isinstance(gone.error, UnknownMemberId), "no member waits for its first generation for ever"


def follower_that_joins_again_changes_nothing() -> None:
    coordinator = world()
    first, second = pair(coordinator)
    answer = second.join()
    assert answer is not None and answer.generation == 1, "it may have lost an answer"
    assert second.sync() == f"1:{second.member_id}".encode()
    second.protocols = {"range": b"topics t u"}
    assert second.join() is None, "it has another subscription"
    assert said(first.heartbeat) == "RebalanceInProgress"


def leader_that_joins_again_begins_a_rebalance() -> None:
    coordinator = world()
    first, second = pair(coordinator)
    assert first.join() is None, "it has seen something that concerns the assignment"
    assert said(second.heartbeat) == "RebalanceInProgress"


def leader_that_lost_its_answer_asks_again() -> None:
    coordinator = world()
    first, second = ClassicClient(coordinator, "a"), ClassicClient(coordinator, "b")
    first.join()
    second.join()
    coordinator.pass_time(6_000)
    second.look()
    answer = first.join()
    assert answer is not None and answer.generation == 1, "the generation goes on"
    assert len(answer.members) == 2, "it learns the members again"


def join_that_is_sent_again_answers_the_first_one() -> None:
    coordinator = world()
    first, second = pair(coordinator)
    third = ClassicClient(coordinator, "c")
    third.join()
    first.join()
    waiting = first.waiting
    assert waiting is not None
    first.join()
    assert type(coordinator.late.get(waiting)).__name__ == "RebalanceInProgress", "no request is left without an answer"
    second.join()
    first.look()
    assert first.generation == 2


def rebalance_answers_those_that_wait_for_an_assignment() -> None:
    coordinator = world()
    first, second = ClassicClient(coordinator, "a"), ClassicClient(coordinator, "b")
    first.join()
    second.join()
    coordinator.pass_time(6_000)
    first.look()
    second.look()
    second.sync()
    ClassicClient(coordinator, "c").join()
    second.look()
    assert type(second.error).__name__ == "RebalanceInProgress", "no request is left without an answer"
    assert said(first.sync) == "RebalanceInProgress", "what the leader assigned is of no use any more"
    assert coordinator.group().state == "PreparingRebalance"


def assignment_of_an_older_generation_is_refused() -> None:
    coordinator = world()
    first, second = pair(coordinator)
    first.join()
    second.join()
    first.look()
    old = first.joined
    second.look()
    assert old is not None
    first.join()
    second.protocols = {"range": b"topics u"}
    second.join()
    first.join()
    first.look()
    second.look()
    assert first.generation == 3, "each rebalance is a generation of its own"
    first.joined = old
    assert said(first.sync) == "IllegalGeneration", "it assigned for other members"


# --- leaving ----------------------------------------------------------------------------------------------------------


def member_that_leaves_is_not_waited_for() -> None:
    coordinator = world()
    first, second = pair(coordinator)
    assert second.leave().error is None
    assert said(first.heartbeat) == "RebalanceInProgress", "its partitions go to the other one at once"
    first.join()
    synced(first)
    assert first.assignment == f"2:{first.member_id}".encode()
    first.leave()
    group = coordinator.group()
    assert (group.state, group.members, group.group_epoch) == ("Empty", (), 3), "the last one leaves an empty group"
    coordinator.fail_over()
    assert coordinator.group() == group, "as recorded"


def several_leave_at_once() -> None:
    coordinator = world()
    static = ClassicClient(coordinator, "s", instance="i1")
    first, second = ClassicClient(coordinator, "a"), ClassicClient(coordinator, "b")
    settle(first, second, static)
    left = leave(
        coordinator,
        LeavingMember(second.member_id),
        LeavingMember("", "i1"),
        LeavingMember("nobody"),
        LeavingMember("", "i2"),
        LeavingMember("x", "i1"),
    )
    errors = [None if each.error is None else type(each.error).__name__ for each in left]
    assert errors == [None, None, "UnknownMemberId", "UnknownMemberId", "UnknownMemberId"], "each has its own outcome"
    assert [each.member_id for each in coordinator.group().members] == [first.member_id]
    assert leave(coordinator, LeavingMember("m"), group_id="none")[0].error is not None


def waiting_member_that_leaves_is_answered() -> None:
    coordinator = world()
    pair(coordinator)
    third = ClassicClient(coordinator, "c")
    third.join()
    third.leave()
    third.look()
    assert type(third.error).__name__ == "UnknownMemberId", "no request is left without an answer"


# --- failover ---------------------------------------------------------------------------------------------------------


def assignments_outlive_the_coordinator() -> None:
    coordinator = world()
    first, second = pair(coordinator)
    coordinator.fail_over()
    first.heartbeat()
    assert second.sync() == f"1:{second.member_id}".encode(), "generation and assignments are recorded"
    third = ClassicClient(coordinator, "c")
    third.join()
    first.join()
    second.join()
    synced(first, second, third)
    assert first.assignment == f"{first.generation}:{first.member_id}".encode()
    coordinator.fail_over()
    coordinator.pass_time(9_999)
    for client in (first, second, third):
        client.heartbeat()
    coordinator.fail_over()
    coordinator.pass_time(10_000)
    assert coordinator.group().state != "Stable", "sessions run after a change of the coordinator, too"


def generation_that_was_not_assigned_is_forgotten_with_the_coordinator() -> None:
    coordinator = world()
    first, second = pair(coordinator)
    third = ClassicClient(coordinator, "c")
    for client in (third, first, second):
        client.join()
    third.look()
    coordinator.fail_over()
    assert said(third.heartbeat) == "UnknownMemberId", "nothing was recorded of it"
    first.look()
    assert said(first.heartbeat) == "IllegalGeneration", "it joins again"


def numbers_of_lost_generations_are_not_given_again() -> None:
    coordinator = world()
    first, second = pair(coordinator)
    third = ClassicClient(coordinator, "c")
    for client in (third, second, first):
        client.join()
    lost = first.joined
    assert lost is not None and len(lost.members) == 3
    coordinator.fail_over()
    second.look()
    first.join()
    second.join()
    first.look()
    assert first.joined is not None and len(first.joined.members) == 2
    first.joined = lost
    assert said(first.sync) == "IllegalGeneration", "it assigned to a member that the group does not have any more"


# --- limits -----------------------------------------------------------------------------------------------------------


def group_has_a_largest_size() -> None:
    coordinator = world(max_size=2)
    first, second = pair(coordinator)
    assert said(ClassicClient(coordinator, "c").join) == "GroupMaxSizeReached", "the group is full"
    first.protocols = {"range": b"topics t u"}
    first.join()
    second.join()
    second.look()
    assert second.generation == 2, "those that are members may join again"
    assert said(ClassicClient(coordinator, "d").join) == "GroupMaxSizeReached"


def ids_that_nobody_uses_have_a_limit() -> None:
    coordinator = world()
    for number in range(INVITED_MAX):
        ClassicClient(coordinator, f"m{number}").send_join()
    late = ClassicClient(coordinator, "late")
    assert said(late.send_join) == "GroupMaxSizeReached", "a client that never joins costs no more memory"
    static = ClassicClient(coordinator, "s", instance="i1")
    assert said(static.send_join) == "nothing", "others still join"
    coordinator.pass_time(10_000)
    assert said(late.send_join) == "nothing"


def session_timeouts_have_limits() -> None:
    coordinator = world()
    for session_ms, expected in (
        (5_999, "InvalidSessionTimeout"),
        (6_000, "nothing"),
        (1_800_001, "InvalidSessionTimeout"),
    ):
        client = ClassicClient(coordinator, "a", session_ms=session_ms)
        assert said(client.send_join) == expected, f"{session_ms} ms"


# --- offsets ----------------------------------------------------------------------------------------------------------


def only_members_of_the_generation_commit() -> None:
    coordinator = world()
    coordinator.ask(OffsetCommit("g", "", -1, None, COMMIT))
    first, second = pair(coordinator)

    def commit(client: ClassicClient | None, generation: int | None = None, instance: str | None = None) -> str:
        member_id, epoch = ("", -1) if client is None else (client.member_id, client.generation)
        return said(
            lambda: coordinator.ask(
                OffsetCommit("g", member_id, epoch if generation is None else generation, instance, COMMIT)
            )
        )

    assert commit(first) == "nothing"
    assert commit(None) == "UnknownMemberId", "a simple consumer would set back what members have done"
    assert commit(first, 0) == "IllegalGeneration", "a fenced member commits nothing"
    assert commit(first, instance="i9") == "UnknownMemberId"
    first.join()
    assert commit(second) == "nothing", "before it joins again, a member commits what it has read"
    second.join()
    first.look()
    second.look()
    assert commit(second) == "RebalanceInProgress", "it has no assignment of this generation yet"
    first.leave()
    second.leave()
    assert commit(None) == "nothing", "the group is empty"


def commits_in_transactions_are_fenced_by_the_group() -> None:
    coordinator = world()
    first, _ = pair(coordinator)

    def commit(member_id: str, generation: int) -> str:
        request = TxnOffsetCommit("id", ProducerId(1), 0, 1, "g", member_id, generation, None, COMMIT)
        return said(lambda: coordinator.ask(request))

    assert commit(first.member_id, 1) == "nothing"
    assert commit(first.member_id, 0) == "IllegalGeneration", "a fenced member commits nothing"
    assert commit("x", 1) == "UnknownMemberId"
    assert commit("", -1) == "nothing", "clients before KIP-447 name no member"


def commits_count_as_heartbeats() -> None:
    coordinator = world()
    first, second = pair(coordinator)
    for _ in range(3):
        coordinator.pass_time(9_000)
        second.heartbeat()
        coordinator.ask(OffsetCommit("g", first.member_id, 1, None, COMMIT))
    first.heartbeat()
