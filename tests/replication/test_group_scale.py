"""Large groups and many groups: what grows with the number of members, and what must not."""

from __future__ import annotations

from replication.coordination.group_records import ConsumerGroupTargetAssignmentMetadataKey
from replication.coordination.group_requests import ListGroups
from tests.replication.group_stories import Client, Coordinator, settle_all


def assignments(coordinator: Coordinator) -> int:
    """How many target assignments were computed."""
    return sum(
        isinstance(entry.record.key, ConsumerGroupTargetAssignmentMetadataKey)
        for entry in coordinator.log
        if entry.record is not None
    )


def test_a_thousand_members_that_join_at_once_cost_few_assignments() -> None:
    coordinator = Coordinator({"t": 2_000})
    clients = [Client(coordinator, f"m{number:04}") for number in range(1_000)]
    for client in clients:
        client.join()
    assert assignments(coordinator) < 15
    coordinator.pass_time(100)
    assert assignments(coordinator) < 16
    settle_all(*clients)
    assert {len(client.partitions) for client in clients} == {2}
    assert coordinator.group().state == "Stable"
    assert len(coordinator.log) < 8_000, "some records for each member"


def test_groups_of_less_than_ten_members_are_assigned_with_each_answer() -> None:
    coordinator = Coordinator({"t": 20})
    clients = [Client(coordinator, f"m{number}") for number in range(10)]
    for client in clients:
        client.join()
        group = coordinator.group()
        assert group.assignment_epoch == group.group_epoch


def test_a_member_of_a_large_group_that_leaves_is_replaced_within_the_pause() -> None:
    coordinator = Coordinator({"t": 100})
    clients = [Client(coordinator, f"m{number:03}") for number in range(100)]
    for client in clients:
        client.join()
    coordinator.pass_time(100)
    settle_all(*clients)
    for client in clients[:10]:
        client.leave()
    coordinator.pass_time(10)
    settle_all(*clients[10:])
    assert sum(len(client.partitions) for client in clients[10:]) == 100


def test_a_rolling_restart_of_all_members_settles() -> None:
    coordinator = Coordinator({"t": 60})
    clients = [Client(coordinator, f"m{number:02}") for number in range(20)]
    for client in clients:
        client.join()
    coordinator.pass_time(100)
    settle_all(*clients)
    for number in range(20):
        clients[number].leave()
        clients[number] = Client(coordinator, f"n{number:02}")
        clients[number].join()
        coordinator.pass_time(10)
        for client in clients:
            client.heartbeat()
    settle_all(*clients)
    assert {len(client.partitions) for client in clients} == {3}


def test_a_group_with_a_thousand_topics() -> None:
    topics = {f"t{number:04}": 2 for number in range(1_000)}
    coordinator = Coordinator(topics)
    clients = [Client(coordinator, f"m{number}", topics) for number in range(3)]
    for client in clients:
        client.join()
    settle_all(*clients)
    assert sorted(sum(map(len, client.owned.values())) for client in clients) == [666, 667, 667]


def test_many_groups_see_new_partitions_in_bounded_steps() -> None:
    coordinator = Coordinator({"t": 1})
    clients = [Client(coordinator, "m", group_id=f"g{number:04}") for number in range(1_000)]
    for client in clients:
        client.join()
    coordinator.image = Coordinator({"t": 2}).image
    for decision in coordinator.machine.on_image(coordinator.image, coordinator.now):
        coordinator.commit(decision)
    assert len(coordinator.machine.tick(coordinator.now)) <= 200
    coordinator.settle()
    assert {group.state for group in coordinator.ask(ListGroups()).groups} <= {"Stable", "Assigning", "Reconciling"}
