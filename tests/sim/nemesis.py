"""Carries out the faults of a plan in a world, each at its time, and ends each when its time is over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from testbed.sim.loop import MICROS
from testbed.sim.machine import machine_name
from testbed.sim.world import Simulation
from tests.sim import operators
from tests.sim.coordinated_workload import CoordinatedWorkload
from tests.sim.plan import CLIENTS, POWER_FAULTS, Fault, Kind, Plan
from tests.sim.rot import Rot
from tests.sim.volumes import Volumes

Act = Callable[[Simulation, Fault], object]

STEP_MS: Final = (0.5, 200.0)
"""Average time of a callback in a slow process, least and most. An idle node runs some hundred callbacks a second:
with 50 ms each its followers soon leave the in-sync set, with 100 ms it is fenced."""


BOTH_WAYS: Final = 0.5
"""From this amount on a link is disconnected in both directions; all other nodes reach both."""
REJECTS: Final = 0.85
"""From this amount on a firewall rejects the connections over the link, instead of dropping all messages in both
directions."""
TWO_TOGETHER: Final = 0.4
"""Below this amount two nodes are isolated together, if more than one node remains on the other side."""


FULL: Final = 0.5
"""From this amount on the object store is full, and not slow."""

HANGING: Final = (
    ("sync", "sync_directory"),
    ("read",),
    ("sync", "sync_directory", "read", "rename", "remove"),
    ("sync", "sync_directory", "read", "rename", "remove", "write", "truncate", "open", "reserve"),
)
HANGS: Final = (0.4, 0.6, 0.8, 1.0)
"""Bounds of the amount that select what hangs in a directory."""


class Nemesis:
    """Carries out a plan. Faults may overlap; the end of one may end another of its kind early."""

    def __init__(self, sim: Simulation, plan: Plan, coordinated: CoordinatedWorkload | None = None) -> None:
        """coordinated: the clients of coordinators; None: the world has none."""
        self._sim, self._coordinated = sim, coordinated
        self._over = False
        self._volumes = Volumes(sim)
        self._rot = Rot(sim)
        for fault in plan.faults:
            sim.loop.call_world_later_us(int(fault.at * MICROS), self._begin, fault)
            sim.loop.call_world_later_us(int((fault.at + fault.lasts) * MICROS), self._end, fault)

    def stop(self) -> None:
        """Start no further faults and end none later: the world ends all of them itself. An operator then accepts what
        flipped bits have taken from the last replicas."""
        self._over = True
        if any(machine.disk.rots for machine in self._sim.machines.values()):
            operators.accept_losses(self._sim)

    def _begin(self, fault: Fault) -> None:
        if not self._over:
            self._sim.note(f"fault: {fault}")
            if fault.kind is Kind.ROT:
                self._rot.flip_in_log(fault)
            elif fault.kind is Kind.ROT_BESIDE:
                self._rot.flip_beside_logs(fault)
            elif fault.kind in CLIENTS and self._coordinated is not None:
                self._coordinated.begin(fault)
            else:
                BEGIN[fault.kind](self._sim, fault)
            if fault.kind in POWER_FAULTS:
                self._rot.power_lost()
            self._rot.restore_last_copies()

    def _end(self, fault: Fault) -> None:
        if not self._over and fault.kind in END:
            END[fault.kind](self._sim, fault)
        elif not self._over and fault.kind is Kind.EMPTY:
            self._volumes.empty_if_spare(fault.node)
            self._sim.restart(fault.node)
        elif not self._over and fault.kind is Kind.ROT:
            self._rot.scrub(fault)
        elif not self._over and fault.kind in CLIENTS and self._coordinated is not None:
            self._coordinated.end(fault)


def _each(act: Callable[[Simulation, int], object]) -> Act:
    return lambda sim, fault: [act(sim, node) for node in sim.nodes]


def _everywhere(change: Callable[[Fault], dict[str, float]]) -> Act:
    def act(sim: Simulation, fault: Fault) -> None:
        sim.network.set_faults(replace(sim.network.faults, **change(fault)))  # type: ignore[arg-type]

    return act


def _side(sim: Simulation, fault: Fault) -> tuple[int, ...]:
    """The nodes that are disconnected from all others."""
    together = fault.amount < TWO_TOGETHER and len(sim.nodes) > 3
    return (fault.node, fault.other) if together else (fault.node,)


def _isolate(sim: Simulation, fault: Fault) -> None:
    side = _side(sim, fault)
    for node in side:
        for other in sim.nodes:
            if other not in side:
                sim.disconnect_link(node, other)
                sim.disconnect_link(other, node)


def _disconnect_link(sim: Simulation, fault: Fault) -> None:
    if fault.amount >= REJECTS and fault.node != fault.other:
        sim.network.reject(machine_name(fault.node), machine_name(fault.other))
        return
    sim.disconnect_link(fault.node, fault.other)
    if fault.amount >= BOTH_WAYS:
        sim.disconnect_link(fault.other, fault.node)


def _reconnect_link(sim: Simulation, fault: Fault) -> None:
    sim.heal_link(fault.node, fault.other)
    if fault.amount >= BOTH_WAYS:
        sim.heal_link(fault.other, fault.node)


def _hang_directory(sim: Simulation, fault: Fault) -> None:
    """Syncs hang most often: a busy disk serves reads and writes from memory for a long time."""
    directories = sim.machines[fault.node].directories
    share = next(number for number, limit in enumerate(HANGS) if fault.amount <= limit)
    sim.hang_files(fault.node, f"{directories[fault.other % len(directories)]}/", *HANGING[share])


def _make_room(sim: Simulation, fault: Fault) -> None:
    sim.fill_disk(fault.node, room=None)
    sim.restart(fault.node)


def _slow_process(sim: Simulation, fault: Fault) -> None:
    """A slightly slow process is as frequent as a very slow one."""
    least, most = STEP_MS
    sim.slow_process(fault.node, least * (most / least) ** fault.amount)


def _break_store(sim: Simulation, fault: Fault) -> None:
    pace = sim.store.pace
    pace.fails = pace.loses = pace.late = 0.3 * fault.amount


def _slow_store(sim: Simulation, fault: Fault) -> None:
    """A slow store is as frequent as a full one."""
    if fault.amount < FULL:
        sim.store.pace.slow_by = 1 + 200 * fault.amount
    else:
        sim.store.fill(room=int(2_000 * fault.amount))


BEGIN: Final[dict[Kind, Act]] = {
    Kind.KILL: lambda sim, fault: sim.kill(fault.node),
    Kind.POWER_OFF: lambda sim, fault: sim.power_off(fault.node),
    Kind.KILL_ALL: _each(Simulation.kill),
    Kind.POWER_OFF_ALL: _each(Simulation.power_off),
    Kind.PAUSE: lambda sim, fault: sim.pause(fault.node),
    Kind.SLOW: _slow_process,
    Kind.ISOLATE: _isolate,
    Kind.CUT: _disconnect_link,
    Kind.CLOG: lambda sim, fault: sim.clog(fault.node, fault.other, fault.lasts),
    Kind.SLOW_DISK: lambda sim, fault: sim.slow_disk(fault.node, 1 + 50 * fault.amount),
    Kind.STALL_DISK: lambda sim, fault: sim.stall_disk(fault.node),
    Kind.HANG: _hang_directory,
    Kind.DISK_ERROR: lambda sim, fault: sim.break_directory(
        fault.node, fault.other, "sync" if fault.amount < 0.7 else "write"
    ),
    Kind.DISK_FULL: lambda sim, fault: sim.fill_disk(fault.node, room=int(20_000 * fault.amount)),
    Kind.STOP: lambda sim, fault: sim.stop(fault.node),
    Kind.EMPTY: lambda sim, fault: sim.kill(fault.node),
    Kind.CLOCK_JUMP: lambda sim, fault: sim.jump_clock(fault.node, int((fault.amount - 0.5) * 600_000)),
    Kind.LOSS: _everywhere(lambda fault: {"loss": 0.05 * fault.amount}),
    Kind.LATE: _everywhere(lambda fault: {"late": 0.1 * fault.amount, "duplicate": 0.2 * fault.amount}),
    Kind.REASSIGN: operators.reassign,
    Kind.MOVE_COORDINATOR: operators.move_coordinator,
    Kind.ALTER: operators.alter,
    Kind.GROW: operators.grow,
    Kind.PREFER: operators.prefer,
    Kind.DELETE: operators.delete,
    Kind.UNCLEAN: operators.elect_uncleanly,
    Kind.REMOVE_VOTER: operators.remove_voter,
    Kind.CORDON: operators.cordon,
    Kind.QUEUE_MOVES: operators.queue_moves,
    Kind.STORE_AWAY: lambda sim, _: setattr(sim.store.pace, "away", True),
    Kind.STORE_FAILS: _break_store,
    Kind.STORE_SLOW: _slow_store,
    Kind.CUT_BYTES: lambda sim, fault: sim.network.cut_byte_streams(fault.amount, int(fault.lasts * MICROS)),
}

END: Final[dict[Kind, Act]] = {
    Kind.KILL: lambda sim, fault: sim.restart(fault.node),
    Kind.POWER_OFF: lambda sim, fault: sim.restart(fault.node),
    Kind.KILL_ALL: _each(lambda sim, node: sim.restart(node, after=sim.rng.uniform(0, 2))),
    Kind.POWER_OFF_ALL: _each(lambda sim, node: sim.restart(node, after=sim.rng.uniform(0, 2))),
    Kind.PAUSE: lambda sim, fault: sim.resume(fault.node),
    Kind.SLOW: lambda sim, fault: sim.slow_process(fault.node, 0),
    Kind.ISOLATE: lambda sim, fault: [sim.heal(node) for node in _side(sim, fault)],
    Kind.CUT: _reconnect_link,
    Kind.SLOW_DISK: lambda sim, fault: sim.slow_disk(fault.node, 1),
    Kind.STALL_DISK: lambda sim, fault: sim.release_disk(fault.node),
    Kind.HANG: lambda sim, fault: sim.release_disk(fault.node),
    Kind.DISK_ERROR: lambda sim, fault: sim.repair_disk(fault.node),
    Kind.DISK_FULL: _make_room,
    Kind.STOP: lambda sim, fault: sim.restart(fault.node),
    Kind.REASSIGN: operators.end_reassignment,
    Kind.QUEUE_MOVES: operators.cancel_moves,
    Kind.STORE_AWAY: lambda sim, _: sim.store.heal(),
    Kind.STORE_FAILS: lambda sim, _: sim.store.heal(),
    Kind.STORE_SLOW: lambda sim, _: sim.store.heal(),
    Kind.REMOVE_VOTER: lambda sim, fault: sim.restart(fault.node),
    Kind.LOSS: _everywhere(lambda fault: {"loss": 0.0}),
    Kind.LATE: _everywhere(lambda fault: {"late": 0.0, "duplicate": 0.0}),
}
