"""Readers that check availability: a record that a sound in-sync replica holds can be read within a bound.

A prober reads one committed record after the other, as a client that knows all nodes, and reports corruption as the
consumer does. A wait is a violation if for the whole bound some member of the in-sync set was sound and reachable
together with a majority of the voters; the other members may be corrupt, hang or be disconnected meanwhile. Not here:
the content of the answers (readings.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from replication.controller.image import PartitionState
from storage.log.log import Log
from testbed.sim import views
from testbed.sim.ledger import Violation
from testbed.sim.loop import MICROS
from testbed.sim.process import ProcessState
from testbed.sim.workload import CORRUPT, Client
from tidelog.errors import CorruptRecord, TidelogError

if TYPE_CHECKING:
    from testbed.sim.machine import Machine
    from testbed.sim.world import Simulation

BOUND_S: Final = 15
"""Twice the sum of a session, the replica lag limit, a hanging read until its timeout, an election, and retries."""
LOOK_US: Final = MICROS // 10


class Availability:
    """One prober of a world. `ask` runs as a task of its client."""

    def __init__(self, sim: Simulation, client: Client) -> None:
        self._sim, self._client = sim, client
        self._wanted: tuple[str, int, int] | None = None  # what it reads now
        self._without_reason_us = 0
        self.answered = 0
        sim.loop.call_world_later_us(LOOK_US, self._look)

    async def ask(self) -> None:
        """Read without end."""
        rng = self._client.rng
        while True:
            places = [
                (topic.name, int(state.partition))
                for topic in sorted(self._sim.image().topics.values(), key=lambda each: each.name)
                for state in topic.partitions
            ]
            found = rng.choice(places) if places else None
            ledger = None if found is None else self._sim.ledger(*found)
            offsets = [] if ledger is None or ledger.lossy else [at for at in ledger.values if at >= ledger.start]
            if found is not None and offsets:
                await self._ask_for(*found, rng.choice(offsets[-100:]))
            await self._client.sleep(rng.uniform(0.1, 0.5))

    async def _ask_for(self, topic: str, partition: int, offset: int) -> None:
        self._wanted, self._without_reason_us = (topic, partition, offset), 0
        refused = False
        while self._is_there(topic, partition, offset):
            try:
                _, reached = await self._client.fetch(topic, partition, offset, refused=refused)
                if reached > offset:
                    break
            except CORRUPT as error:
                refused = isinstance(error, CorruptRecord)
                self._client.forget(topic, partition)
            except TidelogError:
                pass
            await self._client.pause()
        self.answered += 1
        self._wanted = None

    def _is_there(self, topic: str, partition: int, offset: int) -> bool:
        """Whether the record must still be readable: neither the topic nor the record was deleted or lost uncleanly."""
        found = self._sim.image().topic(topic)
        if found is None or partition >= len(found.partitions):
            return False
        ledger = self._sim.ledger(topic, partition)
        return not ledger.lossy and offset >= ledger.start and offset in ledger.values

    def _look(self) -> None:
        wanted = self._wanted
        if wanted is not None and self._is_there(*wanted):
            topic, partition, offset = wanted
            if self.has_a_reason(self._sim.partition(topic, partition)) or self._is_in_tier(topic, partition, offset):
                self._without_reason_us = 0
            else:
                self._without_reason_us += LOOK_US
            if self._without_reason_us > BOUND_S * MICROS:
                state = self._sim.partition(topic, partition)
                raise Violation(
                    f"{topic}-{partition}: offset {offset} cannot be read for {BOUND_S} s, though of {list(state.isr)} "
                    f"in sync one is sound and reachable (node {state.leader} leads)"
                )
        self._sim.loop.call_world_later_us(LOOK_US, self._look)

    def _is_in_tier(self, topic: str, partition: int, offset: int) -> bool:
        """Whether the record is, or may be, in the remote tier only: a read waits for the store and a coordinator."""
        leader = self._sim.leader(topic, partition)
        replica = self._sim.replica(leader, topic, partition) if leader >= 0 else None
        log = None if replica is None else replica.log
        tiered = self._sim.ledger(topic, partition).cleanup.tiered
        return tiered and (log is None or offset < log.local_log_start_offset)

    def has_a_reason(self, state: PartitionState) -> bool:
        """Whether a reader of the partition may have to wait now."""
        sim = self._sim
        if sim.network.is_disturbed:
            return True
        voters = [voter.node_id for voter in sim.image().voters]
        if sum(_is_well(sim.machines[node]) for node in voters) <= len(voters) // 2:
            return True
        return not any(_is_well(sim.machines[node]) and _is_sound(sim.machines[node], state) for node in state.isr)


def _is_well(machine: Machine) -> bool:
    """Whether the node runs at full speed on a disk that works."""
    process, node = machine.process, machine.node
    if process is None or node is None or not views.acts(node) or process.step_us:
        return False
    if process.state not in (ProcessState.RUNNING, ProcessState.SLOW):
        return False
    pace = machine.pace
    troubled = pace.stalled or pace.hanging or pace.slow_by > 1 or machine.disk_broken
    return not troubled and machine.disk.capacity is None and not machine.has_offline_directory


def _is_sound(machine: Machine, state: PartitionState) -> bool:
    """Whether the node has a log of the partition without corruption."""
    replica = machine.replica(state.key)
    log = None if replica is None else replica.log
    if not isinstance(log, Log) or log.damage is not None:
        return False
    inodes = [views.inode_at(machine.disk, segment.path) for segment in log.segments]
    return not any(inode is not None and inode.seen.rot for inode in inodes)
