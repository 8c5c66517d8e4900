"""Static members: a restart within the session timeout moves nothing (KIP-345, KIP-848)."""

from __future__ import annotations

import pytest

from tests.replication.group_stories import SESSION_MS, Client, Coordinator, settle_all
from tidelog.errors import FencedInstanceId, FencedMemberEpoch, UnknownMemberId, UnreleasedInstanceId

ALL = {("t", index) for index in range(4)}


def two_static(coordinator: Coordinator) -> tuple[Client, Client]:
    first = Client(coordinator, "m1", instance="i1")
    second = Client(coordinator, "m2", instance="i2")
    first.join()
    second.join()
    settle_all(first, second)
    return first, second


def test_a_static_member_comes_back_under_another_id_and_nothing_moves() -> None:
    coordinator = Coordinator({"t": 4})
    first, second = two_static(coordinator)
    had, others, epoch = first.partitions, second.partitions, coordinator.group().group_epoch
    first.leave(-2)
    assert second.partitions == others, "its partitions wait for it"
    assert coordinator.group().state == "Reconciling"
    coordinator.pass_time(SESSION_MS // 2)
    second.heartbeat()
    again = Client(coordinator, "m1-again", instance="i1")
    again.join()
    assert again.partitions == had
    group = coordinator.group()
    assert (group.group_epoch, group.state) == (epoch, "Stable")
    assert [member.member_id for member in group.members] == ["m1-again", "m2"]


def test_a_rolling_restart_of_static_members_bumps_no_epoch() -> None:
    coordinator = Coordinator({"t": 4})
    clients = list(two_static(coordinator))
    epoch, had = coordinator.group().group_epoch, [client.partitions for client in clients]
    for round_ in range(2):
        for number in (0, 1):
            clients[number].leave(-2)
            clients[number] = Client(coordinator, f"m{number}-{round_}", instance=f"i{number + 1}")
            clients[number].join()
    assert coordinator.group().group_epoch == epoch
    assert [client.partitions for client in clients] == had


def test_a_static_member_that_stays_away_loses_its_partitions_after_the_session_timeout() -> None:
    coordinator = Coordinator({"t": 4})
    first, second = two_static(coordinator)
    coordinator.pass_time(1_000)
    second.heartbeat()
    first.leave(-2)
    coordinator.pass_time(SESSION_MS - 1_000)
    assert second.partitions == ALL
    assert [member.member_id for member in coordinator.group().members] == ["m2"]


def test_the_instance_id_of_a_member_that_runs_is_refused() -> None:
    coordinator = Coordinator({"t": 4})
    first, second = two_static(coordinator)
    with pytest.raises(UnreleasedInstanceId, match="belongs to member 'm1'"):
        Client(coordinator, "m3", instance="i1").join()
    first.heartbeat()
    second.heartbeat()


def test_a_member_whose_place_was_taken_is_fenced() -> None:
    coordinator = Coordinator({"t": 4})
    first, _ = two_static(coordinator)
    first.leave(-2)
    Client(coordinator, "m3", instance="i1").join()
    with pytest.raises(FencedInstanceId, match="belongs to member 'm3'"):
        first.beat()
    with pytest.raises(FencedInstanceId):
        first.leave()


def test_a_static_member_that_leaves_for_good_gives_its_partitions_away_at_once() -> None:
    coordinator = Coordinator({"t": 4})
    first, second = two_static(coordinator)
    first.leave(-1)
    assert second.partitions == ALL
    with pytest.raises(UnknownMemberId, match="instance id 'i1'"):
        first.beat()


def test_an_away_member_must_join_again() -> None:
    coordinator = Coordinator({"t": 4})
    first, _ = two_static(coordinator)
    had = first.partitions
    epoch = first.epoch
    first.leave(-2)
    with pytest.raises(FencedMemberEpoch):
        first.beat(member_epoch=epoch)
    first.join()
    assert first.partitions == had


def test_what_an_away_member_was_asked_to_give_up_is_free() -> None:
    coordinator = Coordinator({"t": 4})
    first = Client(coordinator, "m1", instance="i1")
    second = Client(coordinator, "m2", instance="i2")
    first.join()
    second.join()
    assert second.partitions == set()
    first.leave(-2)
    assert len(second.partitions) == 2


def test_instance_ids_survive_a_change_of_the_coordinator() -> None:
    """Trap 15: the next coordinator knows which member has an instance id."""
    coordinator = Coordinator({"t": 4})
    first, second = two_static(coordinator)
    had = first.partitions
    first.leave(-2)
    coordinator.fail_over()
    second.reconnect()
    again = Client(coordinator, "m3", instance="i1")
    again.join()
    assert again.partitions == had
    with pytest.raises(UnreleasedInstanceId):
        Client(coordinator, "m4", instance="i2").join()


def test_a_static_member_that_returns_with_another_subscription_starts_a_rebalance() -> None:
    coordinator = Coordinator({"t": 4, "u": 2})
    first, second = two_static(coordinator)
    epoch = coordinator.group().group_epoch
    first.leave(-2)
    again = Client(coordinator, "m3", ("u",), instance="i1")
    again.join()
    settle_all(again, second)
    assert coordinator.group().group_epoch == epoch + 1
    assert again.partitions == {("u", 0), ("u", 1)}
    assert second.partitions == ALL
