"""Coordinators on the partitions that a node leads: loading, deciding, appending, answering, ending."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from node.config import GRPC_LISTENER
from node.coordinators.coordinator_log import LINES_MAX, WINDOW_MS
from node.coordinators.coordinator_state import CoordinatorState
from node.replicas.replica_config import ReplicaConfig
from replication.coordination.coordinator_machine import TransactionalProducer
from storage.append_info import Origin
from tests.node.coordinator_world import Add, Arm, Fail, Get, World
from tests.node.wires import batch
from tidelog.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    CorruptLog,
    GroupIdNotFound,
    InvalidProducerEpoch,
    NotCoordinator,
    RecordTooLarge,
    RequestTimedOut,
    TidelogError,
    UnreadableCoordinatorRecord,
)
from tidelog.records import EndTxnMarker, RecordBatchBuilder, control_batch, iter_batches
from tidelog.types import NO_LEADER_EPOCH, NO_NODE, Acks, Millis, NodeId, ProducerId

AWAY = CoordinatorNotAvailable("the controller is away")
"""The in-sync set stays as the test sets it."""


@pytest.fixture
def world() -> Iterator[World]:
    world = World(partitions=3)
    world.set(0, leader=1)
    world.until_active(1)
    yield world
    world.loop.raise_defects()
    world.close()


def marker(world: World, number: int, producer_id: int, *, committed: bool, epoch: int = 0) -> None:
    """Append a transaction marker, as the handler of WriteTxnMarkers does."""
    world.partition(number).leading_in(NO_LEADER_EPOCH).produce(
        control_batch(
            EndTxnMarker(committed, 0), timestamp=1_700_000_000_000, producer_id=producer_id, producer_epoch=epoch
        ),
        origin=Origin.COORDINATOR,
        acks=Acks.ALL,
        deadline=Millis(1 << 60),
        done=lambda _info, _error: None,
    )
    world.run(0.0001)


def batches(world: World, number: int = 1) -> list[Any]:
    return list(iter_batches(world.contents(number)))


def outcome_is_unknown(request: asyncio.Future[Any]) -> bool:
    """Whether the error says that the change may be committed: a producer must not take it for a refusal, after which
    its transaction would count as aborted."""
    error = request.exception()
    return isinstance(error, RequestTimedOut) and error.written is None


def test_a_decision_is_answered_once_the_in_sync_replicas_have_it(world: World) -> None:
    assert world.ask(1, Add("a", 2)) == 2
    assert world.ask(1, Add("a", 3)) == 5
    assert world.ask(1, Get("a")) == 5
    with pytest.raises(GroupIdNotFound):
        world.ask(1, Get("b"))
    assert world.watermark(1) == world.log(1).log_end_offset == 2


def test_nothing_is_answered_before_it_is_committed(world: World) -> None:
    """Neither the decision, nor its effects, nor a later reader that would see it."""
    world.wires.stalled = True
    adding = world.begin(1, Add("a", effects=("added",)))
    reading = world.begin(1, Get("a"))
    world.run(1)
    assert world.log(1).log_end_offset == 1
    assert not adding.done()
    assert not reading.done()
    assert world.coordinators[1].effects == []
    world.wires.stalled = False
    world.wires.break_streams()
    world.until(reading.done)
    assert (adding.result(), reading.result()) == (1, 1)
    assert world.coordinators[1].effects == [(0, "added")]


def test_without_a_lease_only_changes_are_answered(world: World) -> None:
    """What the in-sync replicas confirm is the newest state; what is only read may be an old one. The machine stays,
    and its timers run on."""
    world.ask(1, Add("a", 2))
    world.no_lease[1] = "no heartbeat was acknowledged"
    with pytest.raises(
        CoordinatorNotAvailable, match=r"t-0 .*: no heartbeat was acknowledged\. Look the coordinator up"
    ):
        world.ask(1, Get("a"))
    with pytest.raises(CoordinatorNotAvailable):  # an error may be as old as any other answer
        world.ask(1, Get("b"))
    with pytest.raises(CoordinatorNotAvailable):
        world.ask(1, Arm("a", 1_000))
    assert world.ask(1, Add("a", 3)) == 5
    world.run(1.1)
    del world.no_lease[1]
    assert world.ask(1, Get("a")) == 6, "the timer was armed"
    assert len(world.coordinators[1].machines) == 1


def test_an_event_of_the_node_itself_needs_no_lease(world: World) -> None:
    """A coordinator that was replaced learns so from a leader that refuses its marker. That it records nothing then is
    no answer to a client; refused, the event would be repeated in each turn of the loop."""
    world.ask(1, Add("a", 2))
    world.no_lease[1] = "no heartbeat was acknowledged"

    async def event() -> Any:
        return await world.coordinator(1).submit(Get("a"), needs_lease=False)

    assert world.wait(event()) == 2


def test_the_decisions_of_a_turn_share_a_batch(world: World) -> None:
    tasks = [
        world.loop.create_task(world.coordinators[1].runtime.submit(world.coordinator(1).partition, Add("a")))
        for _ in range(50)
    ]
    world.until(lambda: all(task.done() for task in tasks))
    assert [task.result() for task in tasks] == list(range(1, 51))
    assert [found.count for found in batches(world)] == [50]


def test_the_next_leader_continues(world: World) -> None:
    world.ask(1, Add("a", 2))
    world.ask(1, Add("b", 7))
    world.set(0, leader=2)
    world.until_active(2)
    assert world.ask(2, Get("a")) == 2
    assert world.ask(2, Add("b", 1)) == 8
    assert world.machine(2).epoch == 2
    with pytest.raises(NotCoordinator):
        world.ask(1, Get("a"))
    runtime = world.coordinators[1].runtime
    refused = runtime.with_leader(NotCoordinator("elsewhere"), world.coordinator(2).partition, GRPC_LISTENER)
    assert refused.leader is not None
    assert refused.leader.node_id == 2


def test_a_lost_leadership_fails_what_waits_at_once(world: World) -> None:
    """A decision of one epoch is never given away in a later one, even if its records were committed after all."""
    world.wires.stalled = True
    adding = world.begin(1, Add("a", effects=("added",)))
    world.set(0, leader=2, publish=False)
    world.publish(1)
    assert adding.done()
    assert outcome_is_unknown(adding), "the next leader may have the record"
    assert world.coordinators[1].unloaded == [0]
    world.wires.stalled = False
    world.wires.break_streams()
    world.publish()
    world.until_active(2)
    assert world.coordinators[1].effects == []


def test_a_node_that_may_lead_again_lets_its_clients_wait(world: World) -> None:
    """It was fenced, and no other replica may lead: no lookup finds another coordinator. What waits is refused for the
    same reason: the partition has no leader or, at the end, the node leads again in a newer epoch."""
    world.wires.stalled = True
    adding, reading = world.begin(1, Add("a")), world.begin(1, Get("a"))
    world.set(0, leader=NO_NODE)
    assert outcome_is_unknown(adding)
    assert isinstance(reading.exception(), CoordinatorNotAvailable)
    with pytest.raises(CoordinatorNotAvailable, match="partition t-0 has no leader"):
        world.ask(1, Get("a"))
    world.set(0, leader=1)
    world.wires.stalled = False
    world.wires.break_streams()
    world.until_active(1)
    assert world.ask(1, Get("a")) == 1

    world.wires.stalled = True
    adding, reading = world.begin(1, Add("a")), world.begin(1, Get("a"))
    world.set(0, leader=1)
    assert outcome_is_unknown(adding)
    assert isinstance(reading.exception(), CoordinatorLoadInProgress)


def test_the_same_node_in_a_newer_epoch_loads_again(world: World) -> None:
    world.ask(1, Add("a"))
    machine = world.machine(1)
    world.set(0, leader=1)
    world.until_active(1)
    assert world.machine(1) is not machine
    assert world.machine(1).epoch == 2
    assert world.ask(1, Get("a")) == 1


def test_requests_during_the_load_are_told_so(world: World) -> None:
    world.set(1, leader=1, publish=False)
    world.loop.call_soon(world.manager(1).on_image, world.image)
    refused: list[TidelogError] = []

    async def ask() -> None:
        while world.coordinators[1].runtime.partitions == (0,):
            await world.coordinators[1].runtime._clock.sleep_ms(0)
        try:
            await world.coordinators[1].runtime.submit(world.partition(1, 1).name.partition, Get("a"))
        except TidelogError as error:
            refused.append(error)

    world.wait(ask())
    assert [type(error) for error in refused] == [CoordinatorLoadInProgress]


def test_an_append_that_fails_drops_the_machine(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine has applied what the log lacks: it is loaded again, and no reader has seen the lost decision."""
    world.ask(1, Add("a", 1))
    with monkeypatch.context() as patch:

        def refuse(*_: object, **__: object) -> None:
            raise CoordinatorNotAvailable("no append now")

        patch.setattr(type(world.partition(1).role), "produce", refuse)
        adding, reading = world.begin(1, Add("a", 10)), world.begin(1, Get("a"))
        assert isinstance(adding.exception(), CoordinatorNotAvailable)
        assert isinstance(reading.exception(), CoordinatorNotAvailable)
        assert world.coordinator(1).state is CoordinatorState.SUSPENDED
    world.until_active(1)
    assert world.ask(1, Get("a")) == 1
    assert world.coordinators[1].runtime.meter.suspensions == 1


def test_nothing_is_decided_while_too_few_replicas_are_in_sync() -> None:
    world = World(partitions=1, min_insync_replicas="2")
    world.set(0, leader=1)
    world.until_active(1)
    world.ask(1, Add("a"))
    everyone = world.state().isr
    world.set(0, isr=(NodeId(1),))
    decided = world.machine(1).decided
    adding = world.begin(1, Add("a"))
    assert isinstance(adding.exception(), CoordinatorNotAvailable)
    assert world.machine(1).decided == decided
    assert world.log(1).log_end_offset == 1
    world.set(0, isr=everyone)
    world.until_active(1)
    assert world.ask(1, Add("a")) == 2
    world.close()


def test_an_idle_coordinator_stays_while_too_few_replicas_are_in_sync(caplog: pytest.LogCaptureFixture) -> None:
    """Images and timers wait; nothing is loaded again, and nothing is logged: no request was refused. At the stop of a
    cluster each node logged a line for each of its 50 partitions."""
    world = World(partitions=1, min_insync_replicas="2")
    world.set(0, leader=1)
    world.until_active(1)
    world.ask(1, Arm("a", 300))
    machine, everyone = world.machine(1), world.state().isr
    world.refuse = AWAY
    world.set(0, isr=(NodeId(1),))
    world.run(2)
    assert world.coordinator(1).state is CoordinatorState.ACTIVE
    assert world.image not in machine.images
    assert world.log(1).log_end_offset == 0
    world.set(0, isr=everyone)
    world.run(1)
    assert world.machine(1) is machine
    assert world.image in machine.images
    assert world.coordinators[1].effects == [(0, "ticked a")]
    assert world.ask(1, Get("a")) == 1
    assert caplog.messages == []
    world.close()


def test_what_a_coordinator_decides_by_itself_is_logged_in_bounded_numbers(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "node.coordinators")
    world = World(partitions=1)
    world.set(0, leader=1)
    world.until_active(1)
    caplog.clear()
    for number in range(LINES_MAX + 3):
        world.ask(1, Arm(f"c{number}", due_in_ms=100))
    world.run(1)
    assert caplog.messages == [f"counter coordinator t-0: c{number} was due" for number in range(LINES_MAX)]
    world.run(WINDOW_MS / 1000)
    world.ask(1, Arm("late", due_in_ms=100))
    world.run(1)
    assert caplog.messages[-1].endswith("late was due; 3 earlier lines of this kind were left out")
    world.close()


def test_one_line_says_that_many_coordinators_are_suspended(caplog: pytest.LogCaptureFixture) -> None:
    world = World(partitions=12, min_insync_replicas="2")
    for index in range(12):
        world.set(index, leader=1, publish=False)
    world.publish()
    for index in range(12):
        world.until_active(1, index)
    world.refuse = AWAY
    for index in range(12):
        world.set(index, isr=(NodeId(1),), publish=False)
    world.publish()
    world.run(1)
    assert caplog.messages == []
    for _ in range(3):
        refused = [world.begin(1, Add("a"), index) for index in range(12)]
        assert all(isinstance(each.exception(), CoordinatorNotAvailable) for each in refused)
        world.run(1)
    [line] = caplog.messages
    assert line.startswith(
        "counter coordinators of 12 partitions of t (0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more): suspe"
    )
    assert "min.insync.replicas" in line
    for index in range(12):
        world.set(index, isr=(NodeId(1), NodeId(2)), publish=False)
    world.publish()
    world.until_active(1, 5)
    assert world.ask(1, Add("a"), 5) == 1
    world.close()


def test_a_coordinator_that_is_loaded_while_too_few_are_in_sync_is_reported_when_it_is_used(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(partitions=1, min_insync_replicas="2")
    world.refuse = AWAY
    world.set(0, leader=1, isr=(NodeId(1),))
    world.until(lambda: world.coordinator(1).state is CoordinatorState.SUSPENDED)
    world.run(1)
    assert caplog.messages == []
    with pytest.raises(CoordinatorNotAvailable):
        world.ask(1, Get("a"))
    world.run(1)
    assert [line.split(":")[0] for line in caplog.messages] == ["counter coordinator t-0"]
    world.close()


def test_a_decision_that_cannot_be_committed_has_no_effect() -> None:
    """The in-sync set shrinks below its minimum after the append. The record is committed later, and the machine that
    is loaded then decides itself what follows from it."""
    world = World(partitions=1, min_insync_replicas="2")
    world.set(0, leader=1)
    world.until_active(1)
    everyone = world.state().isr
    world.wires.stalled = True
    adding = world.begin(1, Add("a", effects=("added",)))
    world.set(0, isr=(NodeId(1),))
    assert outcome_is_unknown(adding)
    assert world.coordinator(1).state is CoordinatorState.SUSPENDED
    world.wires.stalled = False
    world.wires.break_streams()
    world.set(0, isr=everyone)
    world.until_active(1)
    assert world.ask(1, Get("a")) == 1
    assert world.coordinators[1].effects == []
    world.close()


def test_records_above_the_high_watermark_are_loaded_and_not_shown_before_their_commit(world: World) -> None:
    world.wires.stalled = True
    adding = world.begin(1, Add("a"))
    world.set(0, leader=1)
    assert outcome_is_unknown(adding)
    world.until_active(1)
    reading = world.begin(1, Get("a"))
    world.run(0.5)
    assert world.watermark(1) == 0
    assert not reading.done()
    world.wires.stalled = False
    world.wires.break_streams()
    world.until(reading.done)
    assert reading.result() == 1


def test_an_unreadable_record_stops_its_partition_alone(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.set(1, leader=1)
    world.set(2, leader=1)
    world.until_active(1, 1)
    world.produce(1, batch(b"no number"), index=1)
    world.set(1, leader=1)
    world.until(lambda: world.coordinator(1, 1).state is CoordinatorState.UNREADABLE)
    with pytest.raises(UnreadableCoordinatorRecord, match="t-1, batch at offset 0"):
        world.ask(1, Get("a"), 1)
    assert world.ask(1, Add("a"), 2) == 1
    assert world.ask(1, Add("a"), 0) == 1
    assert len([line for line in caplog.messages if "serves nothing" in line]) == 1


def test_rot_is_found_before_it_is_decided_on(world: World) -> None:
    """A bit of a count has flipped on the disk of the next leader, which its checksum shows."""
    for number in range(3):
        world.ask(1, Add("a", number))
    world.run(1)
    log = world.log(2)
    world.read_files_only(2)
    world.machines[2].disk.flip_bit(log.active.path, log.active.size - 2)
    world.set(0, leader=2)
    world.run(0.1)
    with pytest.raises((UnreadableCoordinatorRecord, CorruptLog, CoordinatorLoadInProgress)):
        world.ask(2, Get("a"))
    assert log.damage is not None
    assert world.coordinators[2].runtime.meter.loads == 0
    world.set(0, leader=3)
    world.until_active(3)
    assert world.ask(3, Get("a")) == 3


def test_transactional_records_wait_for_their_marker(world: World) -> None:
    producer = TransactionalProducer(ProducerId(5), 0)
    world.ask(1, Add("a", 1))
    world.ask(1, Add("a", 10, producer))
    world.ask(1, Add("b", 3, producer))
    found = batches(world)
    assert [each.is_transactional for each in found] == [False, True, True]
    assert {(each.producer_id, each.producer_epoch, each.base_sequence) for each in found[1:]} == {(5, 0, -1)}
    assert world.ask(1, Get("a")) == 1
    marker(world, 1, 5, committed=True)
    assert world.ask(1, Get("a")) == 11
    assert world.ask(1, Get("b")) == 3
    world.ask(1, Add("a", 100, producer))
    marker(world, 1, 5, committed=False)
    world.set(0, leader=3)
    world.until_active(3)
    assert world.ask(3, Get("a")) == 11


def test_a_marker_during_the_load_is_applied_once(world: World) -> None:
    producer = TransactionalProducer(ProducerId(5), 0)
    world.ask(1, Add("a", 10, producer))
    world.set(0, leader=1, publish=False)
    world.loop.call_soon(world.manager(1).on_image, world.image)
    world.until(lambda: world.coordinators[1].runtime.coordinator(world.coordinator(1).partition).leader_epoch == 2)
    marker(world, 1, 5, committed=True)
    world.publish()
    world.until_active(1)
    assert world.ask(1, Get("a")) == 10


def test_a_fenced_producer_is_refused_and_the_machine_stays(world: World) -> None:
    world.ask(1, Add("a", 10, TransactionalProducer(ProducerId(5), 3)))
    marker(world, 1, 5, committed=True, epoch=3)
    with pytest.raises(InvalidProducerEpoch):
        world.ask(1, Add("a", 10, TransactionalProducer(ProducerId(5), 2)))
    assert world.ask(1, Get("a")) == 10
    assert world.coordinators[1].runtime.meter.suspensions == 0


def test_timers_run_without_requests(world: World) -> None:
    world.ask(1, Add("a", due_in_ms=30_700))
    world.run(30.6)
    assert world.machine(1).counts == {"a": 1}
    world.run(0.2)
    assert world.ask(1, Get("a")) == 2
    assert world.coordinators[1].effects == [(0, "ticked a")]


def test_a_timer_wakes_a_node_that_has_nothing_else_to_do() -> None:
    world = World(1)
    world.set(0, leader=1)
    world.until_active(1)
    world.run(20)
    world.ask(1, Arm("a", 300))
    world.run(0.4)
    assert world.coordinators[1].effects == [(0, "ticked a")]
    world.close()


def test_an_idle_coordinator_does_not_tick(world: World) -> None:
    world.run(10)
    assert world.coordinators[1].runtime._next_due(Millis(0)) is None


def test_images_reach_the_machine(world: World) -> None:
    seen = len(world.machine(1).images)
    world.publish()
    world.run(0.1)
    assert len(world.machine(1).images) > seen
    assert world.machine(1).images[-1] is world.image


def test_a_decision_that_no_batch_may_contain_is_refused(world: World) -> None:
    with pytest.raises(RecordTooLarge):
        world.ask(1, Add("a", size=2 << 20))
    assert world.ask(1, Add("a")) == 1


def test_large_decisions_do_not_share_a_batch(world: World) -> None:
    tasks = [
        world.loop.create_task(
            world.coordinators[1].runtime.submit(world.coordinator(1).partition, Add("a", size=600_000))
        )
        for _ in range(3)
    ]
    world.until(lambda: all(task.done() for task in tasks))
    assert [found.count for found in batches(world)] == [1, 1, 1]


def test_a_defect_of_a_request_concerns_its_caller_alone(world: World) -> None:
    with pytest.raises(ValueError, match="a defect"):
        world.ask(1, Fail())
    assert world.ask(1, Add("a")) == 1


def test_a_defect_of_the_machine_loads_it_again(world: World) -> None:
    world.ask(1, Add("a"))
    with pytest.raises(AssertionError, match="a defect"):
        world.ask(1, Fail(in_apply=True))
    with pytest.raises(CoordinatorNotAvailable):
        world.ask(1, Get("a"))
    world.until(lambda: world.coordinator(1).state is CoordinatorState.ACTIVE, within=20)
    assert world.ask(1, Get("a")) == 1


def test_a_defect_at_a_marker_does_not_concern_the_append(world: World) -> None:
    world.ask(1, Add("marker defect", 1, TransactionalProducer(ProducerId(5), 0)))
    marker(world, 1, 5, committed=True)
    assert world.coordinator(1).state is CoordinatorState.SUSPENDED
    world.until(lambda: world.watermark(1) == 2)
    world.until(lambda: world.coordinator(1).state is CoordinatorState.ACTIVE, within=20)
    assert world.ask(1, Get("marker defect")) == 1


def test_a_defect_of_an_effect_does_not_concern_the_commit(world: World) -> None:
    assert world.ask(1, Add("a", effects=("broken", "added"))) == 1
    assert world.coordinators[1].effects == [], "the machine that is loaded next decides them itself"
    world.until(lambda: world.coordinator(1).state is CoordinatorState.ACTIVE, within=20)
    assert world.ask(1, Get("a")) == 1


def test_a_slow_commit_is_answered_as_unknown_and_keeps_the_machine() -> None:
    """The followers are alive enough to stay in sync for long, but confirm nothing."""
    world = World(config=ReplicaConfig())
    world.set(0, leader=1)
    world.until_active(1)
    world.wires.stalled = True
    world.refuse = CoordinatorNotAvailable("the controller is away")
    adding = world.begin(1, Add("a", effects=("added",)))
    world.until(adding.done, within=10)
    assert outcome_is_unknown(adding)
    assert world.coordinator(1).state is CoordinatorState.ACTIVE
    world.wires.stalled, world.refuse = False, None
    world.wires.break_streams()
    world.until(lambda: world.coordinators[1].effects == [(0, "added")])
    assert world.ask(1, Get("a")) == 1
    world.close()


def test_a_request_does_not_wait_for_ever_for_an_earlier_change(world: World) -> None:
    """The change is of an earlier epoch, so that no producer of this one waits for it."""
    world.wires.stalled = True
    world.refuse = CoordinatorNotAvailable("the controller is away")
    adding = world.begin(1, Add("a"))
    world.set(0, leader=1)
    assert outcome_is_unknown(adding)
    world.until_active(1)
    reading = world.begin(1, Get("a"))
    world.until(reading.done, within=10)
    assert isinstance(reading.exception(), CoordinatorNotAvailable)


def test_requests_during_a_commit_share_the_next_batch(world: World) -> None:
    world.wires.stalled = True
    tasks = [world.begin(1, Add("a")) for _ in range(5)]
    world.run(0.5)
    assert [found.count for found in batches(world)] == [1]
    world.wires.stalled = False
    world.wires.break_streams()
    world.until(lambda: all(task.done() for task in tasks))
    assert [found.count for found in batches(world)] == [1, 4]
    assert [task.result() for task in tasks] == [1, 2, 3, 4, 5]


def test_a_large_partition_loads_in_many_turns(world: World) -> None:
    builder = RecordBatchBuilder()
    for number in range(5_000):
        builder.append(key=b"name-%d" % (number % 10), value=b"1", timestamp=1_700_000_000_000)
    world.set(1, leader=1)
    for _ in range(3):
        world.produce(1, builder.build(), index=1)
    world.set(1, leader=2)
    world.until_active(2, 1)
    assert world.ask(2, Get("name-3"), 1) == 1_500
    assert world.coordinators[2].runtime.meter.records_loaded == 15_000


def test_a_partition_that_is_not_in_memory_is_read_on_another_thread(world: World) -> None:
    for number in range(5):
        world.ask(1, Add("a", number))
    world.machines[2].disk.is_cold = lambda path: path.endswith(".log")
    world.machines[2].executor.holding = True
    world.set(0, leader=2)
    world.run(1)
    assert world.coordinator(2).state is CoordinatorState.LOADING, "it waits for the disk"
    with pytest.raises(CoordinatorLoadInProgress):
        world.ask(2, Get("a"))
    world.machines[2].disk.is_cold = None
    world.machines[2].executor.release()
    world.until_active(2)
    assert world.ask(2, Get("a")) == 10


def test_a_leadership_that_ends_during_the_load_ends_it(world: World) -> None:
    world.ask(1, Add("a"))
    world.machines[2].disk.is_cold = lambda path: path.endswith(".log")
    world.machines[2].executor.holding = True
    world.set(0, leader=2)
    world.run(0.1)
    coordinator = world.coordinator(2)
    world.set(0, leader=3)
    world.machines[2].disk.is_cold = None
    world.machines[2].executor.release()
    world.until_active(3)
    world.run(0.1)
    assert coordinator.state is CoordinatorState.ENDED
    assert world.ask(3, Get("a")) == 1
