"""Bit flips in the logs of one node of a random world, and the repairs of an operator.

Tidelog keeps all records as long as one sound copy exists: a replica in the in-sync set or the eligible set. So bits
flip on one node only, and only while another replica of the partition is in one of these sets. If other faults leave
the corrupt replica as the last one in these sets, an operator stops the process and restores the original bytes, as
from a backup. An operator also restores a leader epoch checkpoint that a log of format v0 or v1 needs. After a power
loss a node knows only what its files prove to be durable; above that, recovery cannot distinguish a flipped bit from a
torn write, and the bit is restored as well. The scrub checks closed segments in turn, and takes longer than a simulated
world lasts: an operator runs it over a whole log some time after the flip, and repeatedly when all faults are over.

Invariants: the original byte is known until it is overwritten (fake_disk.py), so that checkers see a log as it was
written; flipped bits that are replicated, read or acknowledged reach the checkers as they are. Not here: the times
(plan.py, nemesis.py), the repair of a log (healing.py).
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from replication.controller.image import PartitionState
from storage.checkpoints.checkpoint_file import RECOVERY_POINT_CHECKPOINT, read_offsets
from storage.checkpoints.durable_offsets import DURABLE_MARKS, parse_marks
from storage.files.file_system import read_file
from testbed.fake_tree import Inode
from testbed.sim import views
from testbed.sim.loop import MICROS
from testbed.sim.machine import Machine
from testbed.sim.undisturbed_logs import without_hooks
from testbed.sim.world import Simulation
from tests.sim.plan import Fault
from tidelog.errors import CorruptRecord
from tidelog.records import walk_headers
from tidelog.types import Durability, NodeId, Offset, PartitionKey

CHECK_INTERVAL_US: Final = MICROS // 10
CHECKS_PER_SCRUB: Final = 20
"""Interval of the scrub after all faults, as a number of checks."""
RECENT_BYTES: Final = 300
"""Half of the bits flip within the last bytes: recovery reads them and followers fetch them."""

CHECKPOINTS: Final = (
    "leader-epoch-checkpoint",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
)
OTHER_FILES: Final = (".index", ".timeindex", ".txnindex", ".snapshot", *CHECKPOINTS)
"""Files beside the partition logs in which bits flip."""


@dataclass(frozen=True, slots=True)
class Flipped:
    """A flipped bit in a file of a replica's log."""

    machine: Machine
    key: PartitionKey
    path: str
    inode: Inode
    position: int
    epochs: bytes = b""
    """The leader epoch checkpoint beside the file when the bit flipped. Recovery removes the epochs of what it finds
    lost, and a log of format v0 or v1 has them nowhere else."""

    @property
    def is_present(self) -> bool:
        """Whether the bit is still in the log and flipped, for readers or on the disk."""
        found = views.inode_at(self.machine.disk, self.path)
        return found is self.inode and any(self.position in image.rot for image in (found.seen, found.durable))

    def restore(self) -> None:
        """Restore the bit as it was written, and the epochs that recovery has removed because of it."""
        for image in (self.inode.seen, self.inode.durable):
            if self.position in image.rot:
                image.flip(self.position, image.rot[self.position])
        checkpoint = views.inode_at(self.machine.disk, _epochs_beside(self.path))
        if checkpoint is not None and len(checkpoint.seen.data) < len(self.epochs):
            for image in (checkpoint.seen, checkpoint.durable):
                image.resize(0)
                image.write(0, self.epochs)


class Rot:
    """The flipped bits of a world and their repair."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
        self._flipped: list[Flipped] = []
        self._epochs: list[Flipped] = []
        """Flips in leader epoch checkpoints: logs of formats v0 and v1 have their epochs there only."""
        self._checks = 0

    @property
    def flipped(self) -> list[Flipped]:
        """The bits that differ from what was written, in logs that still exist."""
        return [flipped for flipped in self._flipped if flipped.is_present]

    def flip_in_log(self, fault: Fault) -> None:
        """Flip a bit in a log of the fault's node, which may be down. No effect if none of its logs may lose a bit."""
        rng = random.Random(str(fault))
        machine = self._sim.machines[fault.node]
        logs = list(self._logs_on(machine))
        if not logs:
            return
        state, directory = rng.choice(logs)
        files = [path for path in views.files_in(machine.disk, directory) if path.endswith(".log")]
        path = rng.choice(files) if files else ""
        inode = views.inode_at(machine.disk, path)
        if inode is None:
            return
        size = min(len(inode.seen.data), len(inode.durable.data))
        if size == 0:
            return
        position = rng.randrange(max(0, size - RECENT_BYTES) if fault.amount < 0.5 else 0, size)
        if any(data is None or at <= position < at + len(data) for at, data in inode.pending):
            return
        checkpoint = views.inode_at(machine.disk, _epochs_beside(path))
        epochs = b"" if checkpoint is None else bytes(checkpoint.seen.data)
        flipped = Flipped(machine, state.key, path, inode, position, epochs)
        if not self._is_known(flipped):
            return
        bit = rng.randrange(8)
        self._sim.note(f"{machine.name}: bit {bit} of byte {position} of {path}, of {size}, flips")
        machine.disk.flip_bit(path, position, bit)
        self._check_later(self._flipped, flipped)

    def _check_later(self, flips: list[Flipped], flipped: Flipped) -> None:
        if not (self._flipped or self._epochs):
            self._sim.loop.call_world_later_us(CHECK_INTERVAL_US, self._check)
        flips.append(flipped)

    def flip_beside_logs(self, fault: Fault) -> None:
        """Flip a bit in a file beside the logs of the fault's node: one that can be rebuilt from them, or that
        reports itself as unreadable."""
        rng = random.Random(str(fault))
        machine = self._sim.machines[fault.node]
        disk, paths = machine.disk, []
        for directory in machine.directories:
            for path in views.files_in(disk, directory):
                name = path.rpartition("/")[2]
                if disk.is_directory(path) and not name.startswith("__") and not name.endswith(("-delete", "-stray")):
                    paths += [each for each in views.files_in(disk, path) if each.endswith(OTHER_FILES)]
                elif name in OTHER_FILES:
                    paths.append(path)
        path = rng.choice(paths) if paths else ""
        inode = views.inode_at(disk, path)
        size = 0 if inode is None else min(len(inode.seen.data), len(inode.durable.data))
        if inode is None or size == 0:
            return
        position, bit = rng.randrange(size), rng.randrange(8)
        if path.endswith(CHECKPOINTS):
            bit = 7  # a digit must not become another digit: these files have no checksum
        self._sim.note(f"{machine.name}: bit {bit} of byte {position} of {path}, of {size}, flips")
        disk.flip_bit(path, position, bit)
        if path.endswith("leader-epoch-checkpoint"):
            log = path.rsplit("/", 2)[1]
            for topic in self._sim.image().topics.values():
                for state in topic.partitions:
                    if log == f"{topic.name}-{state.partition}":
                        self._check_later(self._epochs, Flipped(machine, state.key, path, inode, position))

    def power_lost(self) -> None:
        """Handle a power loss: restore the flipped bits that recovery could not distinguish from a torn write."""
        for flipped in self.flipped:
            if flipped.machine.name in self._sim.network.machines_off and not self._is_known(flipped):
                flipped.restore()

    def _is_known(self, flipped: Flipped) -> bool:
        """Whether the files beside the log prove that the flipped byte was durable."""
        disk, (directory, log) = flipped.machine.disk, flipped.path.rsplit("/", 2)[:2]
        with without_hooks(disk), disk.as_written():
            points = read_offsets(disk, f"{directory}/{RECOVERY_POINT_CHECKPOINT}")
            marks = dict(mark for mark in parse_marks(read_file(disk, f"{directory}/{DURABLE_MARKS}") or b"") if mark)
            offset = _offset_at(bytes(flipped.inode.seen.data), flipped.position)
        point = next((point for tp, point in points.items() if f"{tp.topic}-{tp.partition}" == log), 0)
        return offset is not None and offset < max(point, marks.get(flipped.key, 0))

    def scrub(self, fault: Fault) -> None:
        """In half of the cases, run the scrub some time later."""
        if random.Random(f"{fault} is found").random() < 0.5:
            self._scrub_all()

    def _scrub_all(self) -> None:
        """Run the scrub over each whole log in which a bit has flipped."""
        for machine, key in dict.fromkeys((flipped.machine, flipped.key) for flipped in self.flipped):
            if machine.up and machine.node is not None and machine.process is not None:
                machine.process.run(views.scrub, machine.node, key)

    def _logs_on(self, machine: Machine) -> list[tuple[PartitionState, str]]:
        """The logs of a node in which a bit may flip: another replica of the partition counts."""
        node = NodeId(machine.node_id)
        return [
            (state, directory)
            for topic in sorted(self._sim.image().topics.values(), key=lambda topic: topic.name)
            if topic.durability is Durability.FSYNC
            for state in topic.partitions
            if node in state.replicas and any(other != node for other in state.counted_on)
            for directory in (f"{path}/{topic.name}-{state.partition}" for path in machine.directories)
            if machine.disk.is_directory(directory)
        ]

    def _check(self) -> None:
        """Run the scrub periodically while any bit is flipped."""
        self.restore_last_copies()
        if not (self._flipped or self._epochs):
            return
        self._checks += 1
        if self._sim.healing and self._checks % CHECKS_PER_SCRUB == 0:
            self._scrub_all()
        self._sim.loop.call_world_later_us(CHECK_INTERVAL_US, self._check)

    def restore_last_copies(self) -> None:
        """If a corrupt replica is the last one that counts, restore all of its bytes."""
        self._flipped, self._epochs = self.flipped, [flipped for flipped in self._epochs if flipped.is_present]
        present = [*self._flipped, *self._epochs]
        if not present:
            return
        machine = present[0].machine
        alone = {flipped.key for flipped in present if self._counts_alone(flipped)}
        if alone:
            self._sim.note(f"operator: {machine.name} has the only copy: restore its bytes")
            was_up = machine.up
            self._sim.kill(machine.node_id)
            for flipped in present:
                if flipped.key in alone:
                    flipped.restore()
            if was_up:
                self._sim.restart(machine.node_id)

    def _counts_alone(self, flipped: Flipped) -> bool:
        state = self._sim.image().partition(flipped.key)
        if state is None or flipped.machine.node_id not in state.counted_on:
            return False
        minimum = self._sim.image().min_insync(state)
        others = (self._sim.machines[node] for node in state.counted_on - {flipped.machine.node_id})
        return not any(_continues_to_count(other, minimum) for other in others)


def _epochs_beside(path: str) -> str:
    """The leader epoch checkpoint of the log to which the file belongs."""
    return f"{path.rpartition('/')[0]}/leader-epoch-checkpoint"


def _offset_at(log: bytes, position: int) -> Offset | None:
    """The base offset of the batch that has this byte; None behind the last whole batch: a power loss may have left
    zeros there."""
    try:
        return next((batch.base_offset for batch in walk_headers(log) if batch.end > position), None)
    except CorruptRecord:
        return None


def _continues_to_count(machine: Machine, minimum: int) -> bool:
    """Whether the replica on a machine runs and will still count. A restarted node leaves the in-sync set when it
    registers, a stopping one while it drains; if the set falls below the minimum, the replica stays eligible."""
    stays = machine.node is not None and views.acts(machine.node) and not views.is_stopping(machine.node)
    return machine.up and (stays or minimum > 1)
