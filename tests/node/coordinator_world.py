"""Nodes with coordinators of a small machine: it counts by name. Wires, disks and time are those of `wires.py`; the
internal topic is `t`, to which the tests may also append by themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from node.coordinators.coordinator_spec import CoordinatorSpec
from node.coordinators.coordinator_state import CoordinatorState
from node.coordinators.partition_coordinator import PartitionCoordinator
from node.coordinators.runtime import CoordinatorRuntime
from replication.controller.image import ClusterImage
from replication.coordination.coordinator_machine import Decision, Instant, TransactionalProducer
from replication.coordination.coordinator_record import CoordinatorRecord
from testbed.sim.clock import SimClock
from tests.node.wires import Cluster
from tidelog.errors import GroupIdNotFound, UnreadableCoordinatorRecord
from tidelog.types import Millis, Offset, PartitionIndex, ProducerId


@dataclass(frozen=True)
class Add:
    """Add to a counter. due_in_ms: the machine adds one by itself after this time. size: of the record's value."""

    name: str
    number: int = 1
    producer: TransactionalProducer | None = None
    due_in_ms: int | None = None
    effects: tuple[object, ...] = ()
    size: int = 0


@dataclass(frozen=True)
class Get:
    name: str


@dataclass(frozen=True)
class Arm:
    """The machine adds one by itself after this time; nothing is recorded now."""

    name: str
    due_in_ms: int


@dataclass(frozen=True)
class Fail:
    """The machine has a defect."""

    in_apply: bool = False


class Counters:
    """The machine. Applied counts everything that it has seen, for the tests."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.pending: dict[ProducerId, dict[str, int]] = {}
        self.images: list[ClusterImage] = []
        self.epoch = -1
        self.due: dict[str, Millis] = {}
        self.decided = 0

    def apply(
        self, record: CoordinatorRecord[str, int], _offset: Offset, producer: TransactionalProducer | None, /
    ) -> None:
        assert record.key != "defect", "a defect"
        target = self.counts if producer is None else self.pending.setdefault(producer.producer_id, {})
        target[record.key] = target.get(record.key, 0) + (record.value or 0)

    def apply_marker(self, producer: TransactionalProducer, /, *, committed: bool) -> None:
        assert "marker defect" not in self.pending.get(producer.producer_id, {}) or self.epoch < 0, "a defect"
        for name, number in self.pending.pop(producer.producer_id, {}).items():
            if committed:
                self.counts[name] = self.counts.get(name, 0) + number

    def loaded(self, image: ClusterImage, coordinator_epoch: int, _now: Instant, /) -> Sequence[Decision[Any]]:
        self.epoch = coordinator_epoch
        self.images.append(image)
        return ()

    def handle(self, request: Any, now: Instant, /) -> Decision[Any]:
        self.decided += 1
        match request:
            case Get(name) if name in self.counts:
                return Decision(self.counts[name])
            case Get(name):
                return Decision(GroupIdNotFound(name))
            case Arm(name, due_in_ms):
                self.due[name] = Millis(now.monotonic_ms + due_in_ms)
                return Decision(None)
            case Fail(in_apply=True):
                return Decision(0, (CoordinatorRecord("defect", 1),))
            case Fail():
                raise ValueError("a defect")
            case Add():
                if request.due_in_ms is not None:
                    self.due[request.name] = Millis(now.monotonic_ms + request.due_in_ms)
                record = CoordinatorRecord(request.name + "x" * request.size, request.number)
                after = self.counts.get(request.name, 0) + request.number
                return Decision(after, (record,), request.producer, request.effects)
            case _:
                raise AssertionError(f"unknown request {request}")

    def on_image(self, image: ClusterImage, _now: Instant, /) -> Sequence[Decision[Any]]:
        self.images.append(image)
        return ()

    def tick(self, now: Instant, /) -> Sequence[Decision[Any]]:
        late = [name for name, at in self.due.items() if at <= now.monotonic_ms]
        for name in late:
            del self.due[name]
        return [
            Decision(None, (CoordinatorRecord(name, 1),), effects=(f"ticked {name}",), notice=f"{name} was due")
            for name in late
        ]

    def deadline(self) -> Millis | None:
        return min(self.due.values(), default=None)

    def sizes(self) -> Mapping[str, int]:
        return {"count": len(self.counts)}


def encode(record: CoordinatorRecord[str, int]) -> tuple[bytes, bytes | None]:
    return record.key.encode(), None if record.value is None else str(record.value).encode()


def decode(key: bytes | None, value: bytes | None) -> CoordinatorRecord[str, int]:
    try:
        assert key is not None
        return CoordinatorRecord(key.decode(), None if value is None else int(value))
    except (AssertionError, ValueError):
        raise UnreadableCoordinatorRecord(f"a record has the key {key!r} and the value {value!r}") from None


@dataclass
class Coordinators:
    """The coordinators of one incarnation of a node."""

    runtime: CoordinatorRuntime
    task: asyncio.Task[None]
    effects: list[tuple[int, object]] = field(default_factory=list)
    unloaded: list[int] = field(default_factory=list)
    machines: list[Counters] = field(default_factory=list)


class World(Cluster):
    """Nodes with a coordinator on each partition that they lead."""

    def __init__(self, nodes: int = 3, **arguments: Any) -> None:
        self.coordinators: dict[int, Coordinators] = {}
        self.no_lease: dict[int, str] = {}
        """Nodes that have no lease of the controller, and why."""
        super().__init__(nodes, **arguments)

    def start(self, number: int, *, publish: bool = True) -> None:
        super().start(number, publish=False)
        effects: list[tuple[int, object]] = []
        unloaded: list[int] = []
        machines: list[Counters] = []

        def new_machine(_partition: PartitionIndex) -> Counters:
            machines.append(Counters())
            return machines[-1]

        def carry_out(partition: PartitionIndex, effect: object) -> None:
            assert effect != "broken", "a defect"
            effects.append((partition, effect))

        kind = CoordinatorSpec(
            "counter",
            "t",
            new_machine,
            encode,
            decode,
            carry_out,
            unloaded.append,
        )
        manager = self.manager(number)
        runtime = CoordinatorRuntime(
            kind,
            manager,
            clock=SimClock(self.loop),
            call_soon=self.loop.call_soon,
            why_no_lease=lambda: self.no_lease.get(number, ""),
        )
        task = self.loop.create_task(runtime.run())
        self.coordinators[number] = Coordinators(runtime, task, effects, unloaded, machines)
        if publish:
            self.publish()

    def publish(self, *numbers: int) -> None:
        super().publish(*numbers)
        for number in numbers or tuple(self.machines):
            if self.machines[number].manager is not None and number in self.coordinators:
                self.coordinators[number].runtime.on_image(self.image)
        self.run(0.0001)

    def kill(self, number: int, *, power_fails: bool = False) -> None:
        self.coordinators.pop(number).task.cancel()
        super().kill(number, power_fails=power_fails)

    # --- requests ---

    def begin(self, number: int, request: Any, index: int = 0) -> asyncio.Task[Any]:
        """Send a request, and do not wait for its answer."""
        task = self.loop.create_task(self.coordinators[number].runtime.submit(PartitionIndex(index), request))
        self.run(0.0001)
        return task

    def ask(self, number: int, request: Any, index: int = 0) -> Any:
        return self.wait(self.coordinators[number].runtime.submit(PartitionIndex(index), request))

    def coordinator(self, number: int, index: int = 0) -> PartitionCoordinator:
        return self.coordinators[number].runtime.coordinator(PartitionIndex(index))

    def until_active(self, number: int, index: int = 0) -> None:
        self.until(
            lambda: self.coordinator(number, index).state is CoordinatorState.ACTIVE, what="the coordinator is active"
        )

    def machine(self, number: int) -> Counters:
        """The machine that was made last."""
        return self.coordinators[number].machines[-1]
