"""Stories of groups whose members change their protocol one by one, on a coordinator alone.
tests/sim/mutants/migrations.py plants bugs that they notice."""

from __future__ import annotations

from typing import Any

from replication.coordination.classic_requests import LeavingMember
from replication.coordination.group_records import (
    ConsumerGroupMetadataKey,
    GroupMetadataKey,
    GroupMetadataValue,
)
from replication.coordination.group_requests import GenerationOffsetCommit, OffsetToCommit
from replication.coordination.groups.group_config import GroupConfig, MigrationPolicy
from testbed.consumer_bytes import assigned, places_in, subscription
from tests.replication.classic_clients import ClassicClient, leave, said
from tests.replication.group_stories import Client, Coordinator
from tests.replication.rolling_clients import EAGER, Roller, settle_rolling
from tidelog.types import Offset, PartitionIndex

ALL = {("t", number) for number in range(4)}


def world(**config: Any) -> Coordinator:
    return Coordinator({"t": 4}, config=GroupConfig(initial_rebalance_delay_ms=0, **config))


def pair(coordinator: Coordinator, **options: Any) -> tuple[Roller, Roller]:
    """A classic group of two consumers."""
    first, second = Roller(coordinator, "a", **options), Roller(coordinator, "b", **options)
    settle_rolling(first, second)
    shared(first, second)
    return first, second


def shared(*members: Roller | Client) -> None:
    """Each partition has one owner."""
    had = [member.places if isinstance(member, Roller) else member.partitions for member in members]
    assert set().union(*had) == ALL, f"every partition has an owner: {had}"
    assert sum(map(len, had)) == len(ALL), f"no partition has two owners: {had}"


def kind(coordinator: Coordinator) -> str:
    return coordinator.group().type


def committed(coordinator: Coordinator, member: Roller, generation: int | None = None) -> str:
    """The refusal of a commit of a member, or "nothing"."""
    partitions = (OffsetToCommit("t", PartitionIndex(0), Offset(7)),)
    epoch = member.generation if generation is None else generation
    return said(lambda: coordinator.ask(GenerationOffsetCommit("g", member.member_id, epoch, None, partitions)))


# --- a classic member of a consumer group -----------------------------------------------------------------------------


def classic_member_joins_a_consumer_group() -> None:
    coordinator = world()
    other = Client(coordinator, "m", stream=False)
    other.join()
    member = Roller(coordinator, "a", version=3)
    invited = member.send_join()
    assert invited is not None and type(invited.error).__name__ == "MemberIdRequired", "it is told its id"
    joined = member.send_join()
    assert joined is not None, "it waits for nobody"
    assert (joined.protocol_type, joined.protocol) == ("consumer", EAGER)
    assert (joined.leader, joined.members) == ("", ()), "the coordinator assigns"
    assert joined.generation == coordinator.group().group_epoch == 2, "its generation is its epoch"
    assert places_in(member.sync() or b"") == set(), "all is still with the other one"
    member.heartbeat()
    assert committed(coordinator, member) == "nothing"
    assert committed(coordinator, member, 1) == "IllegalGeneration"
    other.heartbeat()
    assert said(member.heartbeat) == "nothing", "it is asked to give up, and has not"
    other.heartbeat()
    assert said(member.heartbeat) == "RebalanceInProgress", "what it waited for is free"
    settle_rolling(member, other)
    shared(member, other)
    assert len(member.places) == 2, "each has its share"
    assert kind(coordinator) == "consumer"


def cooperative_member_reads_on() -> None:
    coordinator = world()
    first = Client(coordinator, "m")
    first.join()
    member = Roller(coordinator, "a", cooperative=True)
    settle_rolling(member, first)
    had = set(member.places)
    assert len(had) == 2
    second, third = Client(coordinator, "n", stream=False), Client(coordinator, "o", stream=False)
    second.join()
    third.join()
    assert said(member.heartbeat) == "RebalanceInProgress", "there is another assignment"
    member.join()
    kept = places_in(member.sync() or b"")
    assert kept < had, "it is to give something up"
    assert (second.partitions | third.partitions) & had == set(), "and still has it"
    assert said(member.heartbeat) == "RebalanceInProgress", "it has to confirm that"
    second.heartbeat()
    third.heartbeat()
    assert (second.partitions | third.partitions) & had == set(), "it has not confirmed that"
    member.places = kept
    member.join()
    assert said(member.sync) == "nothing"
    second.heartbeat()
    third.heartbeat()
    assert (second.partitions | third.partitions) & had == had - kept, "now it is free"
    settle_rolling(member, first, second, third)
    shared(member, first, second, third)


def old_subscriptions_own_nothing() -> None:
    """Version 0 cannot say what a member has: it is that of eager members, which have given everything up."""
    coordinator = world()
    other = Client(coordinator, "m")
    other.join()
    member = Roller(coordinator, "a", version=0)
    settle_rolling(member, other)
    shared(member, other)
    assert member.sync() == assigned(member.places, 0), "it is answered in its version"


def members_of_other_kinds_are_refused() -> None:
    coordinator = world()
    Client(coordinator, "m").join()
    settle_rolling(Roller(coordinator, "a"), *())
    good = subscription(("t",))
    for protocol_type, protocols in (
        ("connect", {EAGER: good}),
        ("consumer", {"sticky": good}),
        ("consumer", {EAGER: b"no subscription"}),
        ("consumer", {EAGER: b"\xff\xff" + good[2:]}),
        ("consumer", {}),
    ):
        stranger = ClassicClient(coordinator, "x", protocol_type=protocol_type, protocols=protocols)
        assert said(stranger.send_join) == "InconsistentGroupProtocol", f"{protocol_type} with {protocols} is refused"
    newer = ClassicClient(coordinator, "y", protocols={EAGER: b"\0\x09" + subscription(("t",), version=3)[2:] + b"new"})
    assert said(newer.join) == "nothing", "bytes of a newer version begin like those of the newest one"
    assert len(coordinator.group().members) == 3


def requests_of_another_generation_are_refused() -> None:
    coordinator = world()
    other = Client(coordinator, "m")
    other.join()
    member = Roller(coordinator, "a")
    settle_rolling(member, other)
    stale = Roller(coordinator, "a")
    stale.member_id, stale.joined = member.member_id, member.joined
    late = Client(coordinator, "n")
    late.join()
    assert said(member.sync) == "RebalanceInProgress", "its generation is over"
    settle_rolling(member, other, late)
    assert said(stale.heartbeat) == said(stale.sync) == "IllegalGeneration", "it is told that its generation is over"
    assert committed(coordinator, stale) == "IllegalGeneration", "and so is a commit"
    assert committed(coordinator, member) == "nothing"
    other_one = Roller(coordinator, "z")
    other_one.member_id, other_one.joined = "m", member.joined
    assert said(other_one.heartbeat) == "UnknownMemberId", "a member of the consumer protocol sends no such requests"


def silent_classic_member_is_removed() -> None:
    coordinator = world()
    other = Client(coordinator, "m")
    other.join()
    member = Roller(coordinator, "a", session_ms=7_000)
    settle_rolling(member, other)
    for _ in range(3):
        member.heartbeat()
        other.heartbeat()
        coordinator.pass_time(6_999)
    assert len(coordinator.group().members) == 2, "its session is its own"
    coordinator.pass_time(1)
    assert [each.member_id for each in coordinator.group().members] == ["m"], "it was silent for its session"
    other.settle()
    shared(other)
    assert said(member.heartbeat) == "UnknownMemberId"
    assert "it sent no heartbeat for the session timeout" in coordinator.notices[-1]


def member_that_does_not_join_again_in_time_is_removed() -> None:
    coordinator = world()
    other = Client(coordinator, "m")
    other.join()
    member = Roller(coordinator, "a", rebalance_ms=30_000)
    settle_rolling(member, other)
    late = Client(coordinator, "n")
    late.join()
    for _ in range(6):
        assert said(member.heartbeat) == "RebalanceInProgress"
        other.settle()
        late.settle()
        coordinator.pass_time(4_999)
    assert len(coordinator.group().members) == 3, "it has its rebalance timeout"
    member.coordinator.pass_time(6)
    assert said(member.heartbeat) == "UnknownMemberId", "it has been told, and has not joined"
    settle_rolling(other, late)
    shared(other, late)


def member_that_does_not_ask_for_its_assignment_is_removed() -> None:
    coordinator = world()
    other = Client(coordinator, "m")
    other.join()
    member = Roller(coordinator, "a", rebalance_ms=30_000)
    member.join()
    for _ in range(3):
        coordinator.pass_time(9_999)
        other.settle()
        said(member.heartbeat)
    coordinator.pass_time(4)
    assert said(member.heartbeat) == "UnknownMemberId", "nobody reads what it was given"
    assert "or ask for its assignment, within its rebalance timeout" in coordinator.notices[-1]


def classic_member_leaves_a_consumer_group() -> None:
    coordinator = world()
    other = Client(coordinator, "m", instance="i")
    other.join()
    member, static = Roller(coordinator, "a"), Roller(coordinator, "s", instance="j")
    settle_rolling(member, static, other)
    removed = Client(coordinator, "n")
    removed.join()
    outcomes = leave(
        coordinator,
        LeavingMember("n"),
        LeavingMember("m", "j"),
        LeavingMember("x"),
        LeavingMember("x", "j"),
        LeavingMember(member.member_id),
        LeavingMember(member.member_id),
        LeavingMember("", "j"),
    )
    assert [type(each.error).__name__ for each in outcomes] == [
        "NoneType",
        "FencedInstanceId",
        "UnknownMemberId",
        "FencedInstanceId",
        "NoneType",
        "UnknownMemberId",
        "NoneType",
    ]
    assert [type(each).__name__ for each in removed.errors] == ["UnknownMemberId"], "its stream tells it at once"
    other.settle()
    shared(other)


# --- to a consumer group ----------------------------------------------------------------------------------------------


def first_heartbeat_upgrades_a_group() -> None:
    coordinator = world()
    first, second = pair(coordinator)
    before, generation = set(first.places), first.generation
    new = Client(coordinator, "m")
    new.join()
    group = coordinator.group()
    assert (group.type, len(group.members)) == ("consumer", 3)
    assert coordinator.last_values()[GroupMetadataKey("g")] is None, "the classic group is gone"
    assert {each.member_epoch for each in group.members} == {generation, generation + 1}, "generations become epochs"
    assert new.partitions == set(), "the others still have everything"
    assert "is a consumer group (KIP-848) from now on, with its 2 members" in coordinator.notices[-1]
    assert committed(coordinator, first) == "nothing", "they go on"
    assert said(first.heartbeat) == said(second.heartbeat) == "RebalanceInProgress"
    assert first.places == before
    settle_rolling(first, second, new)
    shared(first, second, new)
    assert "UnknownMemberId" not in first.refusals + second.refusals, "they keep their ids"
    assert "IllegalGeneration" not in first.refusals + second.refusals, "nobody was fenced"
    coordinator.fail_over()
    coordinator.streams["g", "m"] = new
    settle_rolling(first, second, new)
    shared(first, second, new)


def upgraded_cooperative_members_keep_what_stays() -> None:
    coordinator = world()
    first, second = pair(coordinator, cooperative=True)
    before = first.places, second.places
    new = Client(coordinator, "m")
    new.join()
    settle_rolling(first, second, new)
    shared(first, second, new)
    assert first.places <= before[0] and second.places <= before[1], "they only gave up"


def requests_that_wait_are_answered_by_an_upgrade() -> None:
    coordinator = world()
    first, second = pair(coordinator)
    third = Roller(coordinator, "c")
    third.join()
    first.join()
    assert first.waiting is not None and third.waiting is not None
    Client(coordinator, "m").join()
    first.look()
    third.look()
    assert type(first.error).__name__ == type(third.error).__name__ == "RebalanceInProgress", "none is forgotten"
    settle_rolling(first, second, third)
    assert len(coordinator.group().members) == 4


def upgraded_members_time_out() -> None:
    coordinator = world()
    pair(coordinator)
    new = Client(coordinator, "m")
    new.join()
    coordinator.pass_time(10_000)
    new.settle()
    shared(new)


def upgrade_counts_beyond_lost_generations() -> None:
    """A coordinator that takes over does not know how many generations have begun: no epoch is one of their numbers."""
    coordinator = world()
    first, second = pair(coordinator)
    third = Roller(coordinator, "c")
    third.join()
    first.join()
    second.join()
    for client in (first, second, third):
        client.look()
    lost = first.generation
    coordinator.fail_over()
    new = Client(coordinator, "m")
    new.join()
    assert new.epoch > lost, "an epoch of its own"
    assert said(third.sync) == "UnknownMemberId", "nothing was recorded of it"
    assert said(first.sync) == "IllegalGeneration", "its generation was lost"
    settle_rolling(first, second, third, new)
    shared(first, second, third, new)


def groups_that_may_not_be_upgraded() -> None:
    for policy in (MigrationPolicy.DISABLED, MigrationPolicy.DOWNGRADE):
        coordinator = world(migration_policy=policy)
        pair(coordinator)
        assert said(Client(coordinator, "m").join) == "GroupIdNotFound", f"{policy} does not allow it"
        assert kind(coordinator) == "classic"
    coordinator = world(consumer_max_size=1)
    pair(coordinator)
    assert said(Client(coordinator, "m").join) == "GroupIdNotFound", "it is too large"
    coordinator = world()
    ClassicClient(coordinator, "w", protocol_type="connect", protocols={"sessioned": subscription(("t",))}).join()
    assert said(Client(coordinator, "m").join) == "GroupIdNotFound", "workers of Connect"
    coordinator = world()
    ClassicClient(coordinator, "x", protocols={EAGER: b"topics"}).join()
    assert said(Client(coordinator, "m").join) == "GroupIdNotFound", "bytes that nobody can read"


def partition_that_was_assigned_twice_has_one_owner() -> None:
    coordinator = world()
    first, second = Roller(coordinator, "a"), Roller(coordinator, "b")
    for each in (first, second):
        each.assign = lambda joined: {each.member_id: assigned({*ALL, ("t", 99), ("u", 0)}) for each in joined.members}
    settle_rolling(first, second)
    new = Client(coordinator, "m")
    new.join()
    had = [each.assignment for each in coordinator.group().members]
    assert sum(len(topic.partitions) for each in had for topic in each) == 4, "each partition once"
    settle_rolling(first, second, new)
    shared(first, second, new)


# --- to a classic group -----------------------------------------------------------------------------------------------


def last_consumer_that_leaves_downgrades_its_group() -> None:
    coordinator = world()
    first, second = pair(coordinator)
    new = Client(coordinator, "m")
    new.join()
    settle_rolling(first, second, new)
    epoch = coordinator.group().group_epoch
    refusals = len(first.refusals)
    new.leave()
    group = coordinator.group()
    assert group.type == "classic", "no member of the consumer protocol is left"
    assert group.state == "PreparingRebalance", "what it had needs another owner"
    assert group.group_epoch == epoch, "members go on in their generation"
    assert "is a classic group from now on" in coordinator.notices[-1]
    record = coordinator.last_values()[GroupMetadataKey("g")]
    assert isinstance(record, GroupMetadataValue)
    assert {each.member_id: places_in(each.assignment) for each in record.members} == {
        first.member_id: first.places,
        second.member_id: second.places,
    }, "what they own"
    assert coordinator.last_values()[ConsumerGroupMetadataKey("g")] is None
    assert committed(coordinator, first) == "nothing", "they go on"
    settle_rolling(first, second)
    shared(first, second)
    assert set(first.refusals[refusals:]) == {"RebalanceInProgress"}, "told to join again, and not fenced"
    assert first.is_leader or second.is_leader, "one of them assigns"


def member_that_prefers_another_protocol_joins_again_after_a_downgrade() -> None:
    """It was told the protocol that it prefers, before its group elected one: its SyncGroup must not be taken for that
    of a client that is at fault, which ends programs."""
    coordinator = world()
    last = Client(coordinator, "m")
    last.join()
    bytes_ = subscription(("t",))
    ranged = ClassicClient(coordinator, "a", protocols={EAGER: bytes_, "sticky": bytes_})
    sticky = ClassicClient(coordinator, "b", protocols={"sticky": bytes_, EAGER: bytes_})
    for _ in range(2):
        for client in (ranged, sticky):
            client.join()
    last.leave()
    assert kind(coordinator) == "classic"
    for client in (ranged, sticky):
        assert said(client.sync) in ("RebalanceInProgress", "IllegalGeneration"), "it joins again"


def downgrade_outlives_the_coordinator() -> None:
    coordinator = world()
    first, second = pair(coordinator)
    new = Client(coordinator, "m")
    new.join()
    settle_rolling(first, second, new)
    new.leave()
    coordinator.fail_over()
    assert coordinator.group().state == "PreparingRebalance", "what the last one had is still without an owner"
    settle_rolling(first, second)
    shared(first, second)


def last_consumer_that_times_out_downgrades_its_group() -> None:
    coordinator = world()
    first, second = pair(coordinator)
    new = Client(coordinator, "m", stream=False)
    new.join()
    settle_rolling(first, second, new)
    for _ in range(10):
        first.step()
        second.step()
        coordinator.pass_time(5_000)
    assert kind(coordinator) == "classic"
    settle_rolling(first, second)
    shared(first, second)


def groups_that_may_not_be_downgraded() -> None:
    for options in ({"migration_policy": MigrationPolicy.UPGRADE}, {"max_size": 1}):
        coordinator = world(**options)
        new = Client(coordinator, "m")
        new.join()
        first, second = Roller(coordinator, "a"), Roller(coordinator, "b")
        settle_rolling(first, second, new)
        new.leave()
        settle_rolling(first, second)
        shared(first, second)
        assert kind(coordinator) == "consumer", "it goes on as it is"


def group_rolls_to_the_new_protocol_and_back() -> None:
    coordinator = world()
    first, second = pair(coordinator, cooperative=True)
    third, fourth = Client(coordinator, "m"), Client(coordinator, "n")
    third.join()
    settle_rolling(first, second, third)
    first.leave()
    fourth.join()
    settle_rolling(second, third, fourth)
    shared(second, third, fourth)
    second.leave()
    settle_rolling(third, fourth)
    shared(third, fourth)
    fifth = Roller(coordinator, "c", cooperative=True)
    third.leave()
    settle_rolling(fifth, fourth)
    shared(fifth, fourth)
    assert kind(coordinator) == "consumer"
    fourth.leave()
    settle_rolling(fifth)
    shared(fifth)
    assert kind(coordinator) == "classic"


# --- static members ---------------------------------------------------------------------------------------------------


def static_member_changes_its_protocol() -> None:
    """Without a rebalance: the others go on, and it keeps what it had."""
    coordinator = world()
    first, second = pair(coordinator, instance=None)
    leave(coordinator, LeavingMember(second.member_id))
    static = Roller(coordinator, "s", instance="i")
    settle_rolling(first, static)
    had, others, epoch = set(static.places), set(first.places), first.generation
    new = Client(coordinator, "m", instance="i")
    new.join()
    assert new.partitions == had, "it takes its place"
    assert kind(coordinator) == "consumer"
    assert said(static.heartbeat) == "FencedInstanceId", "the process before is fenced"
    assert said(first.heartbeat) == "nothing", "no rebalance"
    assert (first.places, first.generation) == (others, epoch)
    again = Roller(coordinator, "r", instance="i")
    answer = again.join()
    assert answer is not None
    assert said(new.heartbeat) in ("FencedInstanceId", "UnknownMemberId"), "and so is this one"
    assert kind(coordinator) == "classic", "no member of the consumer protocol is left"
    assert said(again.sync) == "RebalanceInProgress"
    again.must_join = True
    settle_rolling(first, again)
    shared(first, again)


def static_member_upgrades_a_group_that_rebalances() -> None:
    """It only takes its own place, but what others have left must get an owner."""
    coordinator = world()
    first, second, static = Roller(coordinator, "a"), Roller(coordinator, "b"), Roller(coordinator, "s", instance="i")
    settle_rolling(first, second, static)
    second.leave()
    assert coordinator.group().state == "PreparingRebalance"
    new = Client(coordinator, "m", instance="i")
    new.join()
    settle_rolling(first, new)
    shared(first, new)


def static_member_is_fenced_by_its_successor() -> None:
    coordinator = world()
    other = Client(coordinator, "m")
    other.join()
    static = Roller(coordinator, "s", instance="i")
    settle_rolling(static, other)
    had, epoch = set(static.places), coordinator.group().group_epoch
    again = Roller(coordinator, "r", instance="i")
    again.join()
    assert places_in(again.sync() or b"") == had, "it keeps its place"
    assert coordinator.group().group_epoch == epoch, "without a rebalance"
    assert said(static.heartbeat) == said(static.sync) == said(static.send_join) == "FencedInstanceId"
    assert committed(coordinator, static) == "UnknownMemberId"
    unknown = Roller(coordinator, "u", instance="j")
    unknown.member_id = "x"
    assert said(unknown.send_join) == "UnknownMemberId"
