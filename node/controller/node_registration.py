"""The membership of this node: registers its process, sends heartbeats, and drains its leaderships when it stops.

Invariants:
  1. The node reports that it is ready only after it has applied the log beyond its own registration and the number of
     that registration is fsynced in each of its log directories (docs/metadata.md).
  2. It sends a heartbeat every `heartbeat_ms`, independent of other work, and at once when a log directory fails or
     another node refuses connections.
  3. The process ends when another process has registered the node.

Not here: recovery, which is complete before `run` (node/process/node.py), and the effect of fencing
(replication/controller/controller.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Final, TypeAlias

from node.api.table import CONTROLLER_HEARTBEAT, CONTROLLER_REGISTER_NODE
from node.controller.controller_lease import ControllerLease
from node.metadata.metadata_log import MetadataLog
from node.replication_settings import ReplicationConfig
from node.requests.controller_client import ControllerClient
from node.runtime.work import run_in
from replication.controller import features
from replication.controller.events import DamagedReplica, Heartbeat, HeartbeatAnswer, RegisterNode
from replication.controller.image import NodeRegistration
from replication.controller.metadata_records import DirectoryState
from replication.controller.moved_replicas import MovedReplica
from replication.controller.refusals import RefusedNode
from storage.directory.log_directory import LogDirectory
from storage.files.disk_executor import Executor
from tidelog.clock import Clock
from tidelog.errors import (
    DiskFull,
    DuplicateNodeRegistration,
    InconsistentClusterId,
    InvalidRequest,
    KafkaStorageError,
    NodeIdNotRegistered,
    StaleNodeEpoch,
    TidelogError,
)
from tidelog.types import Endpoint, Incarnation, NodeEpoch, NodeId
from tidelog.values import dataclass

_log = logging.getLogger("node.registration")

CALL_MS: Final = 2_000
RETRY_MS: Final = 100
FULL_MS: Final = 1_000
DRAIN_BEAT_MS: Final = 50
"""Pause between the heartbeats of a node that drains: the answer says whether it may stop."""


Damaged: TypeAlias = Callable[[], Sequence[DamagedReplica]]
"""Replicas that lost records which they had reported as durable."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a process as it registers. boot_id: the boot of its machine."""

    node_id: NodeId
    incarnation: Incarnation
    listeners: Mapping[str, Endpoint]
    rack: str
    boot_id: bytes


@dataclass(slots=True)
class _Progress:
    """The progress of this process."""

    node_epoch: NodeEpoch = NodeEpoch(-1)
    ready: bool = False
    want_drain: bool = False
    drained: asyncio.Event = field(default_factory=asyncio.Event)


class Registration:
    """One incarnation of the process of this node in the cluster."""

    def __init__(
        self,
        identity: Identity,
        directories: Sequence[tuple[LogDirectory, Executor]],
        metadata: MetadataLog,
        controller: ControllerClient,
        *,
        clock: Clock,
        times: ReplicationConfig,
        refused: Callable[[], tuple[RefusedNode, ...]],
        probe: Callable[[NodeId], None],
    ) -> None:
        """directories: each with the executor that writes to it. refused: returns the nodes that refuse this node's
        connections. probe: called with each node whose address the controller asks this one to probe."""
        self._identity, self._directories = identity, tuple(directories)
        self._metadata, self._controller = metadata, controller
        self._clock, self._times, self._refused, self._probe = clock, times, refused, probe
        self._progress = _Progress()
        self.lease = ControllerLease(clock)
        self.moved: Callable[[], tuple[MovedReplica, ...]] = tuple
        """Returns the replicas of this node that moved to another directory than the metadata name."""
        self._named: list[LogDirectory] = []
        """The directories that the registration names."""
        self._wake = asyncio.Event()
        for directory, _ in self._directories:
            directory.when_offline.append(lambda _failed: self.beat_soon())

    def beat_soon(self) -> None:
        """Send a heartbeat at once: there is something to report."""
        self._wake.set()

    @property
    def node_epoch(self) -> NodeEpoch:
        """Number of the registration, -1 before the first one."""
        return self._progress.node_epoch

    def entry(self) -> NodeRegistration | None:
        """The registration of this process in the committed image; None if it has none or another process has it."""
        node = self._metadata.image.nodes.get(self._identity.node_id)
        return node if node is not None and node.incarnation == self._identity.incarnation else None

    @property
    def unfenced(self) -> bool:
        """True if this node may lead and join, by the committed image that it has."""
        entry = self.entry()
        return entry is not None and not entry.fenced

    async def run(self, damaged: Damaged, found_later: Damaged = tuple) -> None:
        """Register and stay registered until drained.

        damaged: replicas whose recovery found damage. found_later: replicas found damaged since, until they leave their
        in-sync sets. Raises StaleNodeEpoch if another process registered this node, InconsistentClusterId,
        InvalidRequest.
        """
        await self._metadata.wait_until(lambda: bool(self._metadata.image.cluster_id))
        await self._register(damaged())
        async with asyncio.TaskGroup() as tasks:
            others = [tasks.create_task(self._get_ready()), tasks.create_task(self._send_to_voters())]
            beating = tasks.create_task(self._beat(damaged, found_later))
            beating.add_done_callback(lambda _: [task.cancel() for task in others])

    async def drain(self) -> None:
        """Move every leadership that another node can take. Returns when none is left, after `drain_ms_max`, or when no
        controller has responded for a session."""
        if self._progress.node_epoch < 0:
            return
        self._progress.want_drain = True
        self._wake.set()
        try:
            async with asyncio.timeout((self._times.drain_ms_max + CALL_MS) / 1_000):
                await self._progress.drained.wait()
        except TimeoutError:
            _log.warning("node %d stops undrained: its leaderships did not move in time", self._identity.node_id)

    # --- steps ----------------------------------------------------------------------------------------------------

    async def _register(self, damaged: Sequence[DamagedReplica]) -> None:
        request = self._request(damaged)  # the same in each attempt: an earlier one may have succeeded
        logged = ""
        while True:
            request = replace(request, metadata_offset=self._metadata.image.offset)
            try:
                answer = await self._controller.call(CONTROLLER_REGISTER_NODE, request, timeout_ms=CALL_MS)
            except (InconsistentClusterId, InvalidRequest):
                raise
            except TidelogError as error:
                if type(error).__name__ != logged:
                    logged = type(error).__name__
                    level = logging.WARNING if isinstance(error, DuplicateNodeRegistration) else logging.INFO
                    _log.log(level, "not registered yet, trying again: %s", error.message)
                await self._clock.sleep_ms(RETRY_MS)
            else:
                # Unfenced before its directories have the new number, they would count as older copies forever: also if
                # they have just got the number of an earlier registration.
                self._progress.ready = False
                self._progress.node_epoch = answer.node_epoch
                _log.info("registered with node epoch %d", answer.node_epoch)
                return

    def _request(self, damaged: Sequence[DamagedReplica]) -> RegisterNode:
        identity = self._identity
        # A directory that failed is left out, as if the disk were missing.
        self._named = [directory for directory, _ in self._directories if directory.offline is None]
        if not self._named:
            raise KafkaStorageError(
                f"all log directories of node {identity.node_id} have failed: check its disks, then start it again"
            )
        return RegisterNode(
            cluster_id=self._metadata.image.cluster_id,
            node_id=identity.node_id,
            incarnation=identity.incarnation,
            listeners=identity.listeners,
            rack=identity.rack,
            boot_id=identity.boot_id,
            directories=tuple(
                DirectoryState(each.directory_id, NodeEpoch(each.identity.last_registration)) for each in self._named
            ),
            intact_directories=frozenset(
                directory.directory_id for directory in self._named if directory.identity.intact
            ),
            metadata_offset=self._metadata.image.offset,
            damaged=_by_key(damaged),
        )

    async def _get_ready(self) -> None:
        """Apply the log beyond the registration and fsync its number in each directory of it; then the node is ready.

        Raises KafkaStorageError if a directory fails first: if the node were unfenced, a directory without the
        number would count as an older copy forever. After a restart the node registers with the directories that work.
        """
        number = self._progress.node_epoch
        await self._metadata.wait_until(lambda: self._metadata.image.offset > number)
        for directory, executor in self._directories:
            if directory in self._named:
                await self._write_number(directory, executor, number)
        failed = [directory.path for directory in self._named if directory.offline is not None]
        if failed:
            raise KafkaStorageError(
                f"log directory {', '.join(failed)} failed before the node was ready: start the node again; it "
                "continues without the directories that still fail"
            )
        self._progress.ready = number == self._progress.node_epoch
        self._wake.set()

    async def _write_number(self, directory: LogDirectory, executor: Executor, number: NodeEpoch) -> None:
        """Retries while the disk is full. Raises KafkaStorageError."""
        while directory.offline is None and number == self._progress.node_epoch:
            try:
                await run_in(executor, lambda: directory.write_registration(number))
                return
            except DiskFull as error:
                _log.warning("not ready yet, the registration cannot be written: %s", error.message)
                await self._clock.sleep_ms(FULL_MS)

    async def _beat(self, damaged: Damaged, found_later: Damaged) -> None:
        answered_at = self._clock.monotonic_ms()
        while not self._progress.drained.is_set():
            self._wake.clear()
            try:
                answer = await self._heartbeat(found_later())
            except NodeIdNotRegistered:  # it was removed from the cluster while no controller heard from it
                await self._register(damaged())
                await self._get_ready()
            except StaleNodeEpoch:
                raise
            except TidelogError as error:
                _log.info("heartbeat to the controller failed: %s", error.message)
                silence_ms = self._clock.monotonic_ms() - answered_at
                if self._progress.want_drain and silence_ms >= self._times.session_ms:
                    _log.warning("stops undrained: no controller has responded for %d ms", silence_ms)
                    self._progress.drained.set()
            else:
                answered_at = self._clock.monotonic_ms()
                if self._progress.want_drain and answer.drained:
                    self._progress.drained.set()
                    return
            await self._pause()

    async def _send_to_voters(self) -> None:
        """Send heartbeats also to the voters that are not the active controller, at the full rate although one of them
        does not answer: leases assume that each has one of the last `heartbeat_ms`."""
        while True:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._clock.sleep_ms(self._times.heartbeat_ms))
                for target in self._controller.inactive_controllers():
                    tasks.create_task(self._send_heartbeat(target))

    async def _send_heartbeat(self, target: Endpoint | None) -> None:
        with contextlib.suppress(TidelogError):  # without it the voter, once controller, fences this node
            await self._controller.send(
                target,
                CONTROLLER_HEARTBEAT,
                replace(self._beat_request(()), moved=(), is_notice=True),
                timeout_ms=self._times.heartbeat_ms,
            )

    async def _heartbeat(self, damaged: Sequence[DamagedReplica]) -> HeartbeatAnswer:
        timeout_ms = max(self._times.heartbeat_ms, self._times.session_ms // 3)
        request, sent_at = self._beat_request(damaged), self._clock.monotonic_ms()
        answer = await self._controller.call(CONTROLLER_HEARTBEAT, request, timeout_ms=timeout_ms)
        self.lease.renew(sent_at, answer.lease_ms)
        for node_id in answer.probe:
            self._probe(node_id)
        return answer

    def _beat_request(self, damaged: Sequence[DamagedReplica]) -> Heartbeat:
        progress = self._progress
        return Heartbeat(
            node_id=self._identity.node_id,
            node_epoch=progress.node_epoch,
            metadata_offset=self._metadata.image.offset,
            ready=progress.ready,
            want_drain=progress.want_drain,
            damaged=_by_key(damaged),
            offline_directories=tuple(
                directory.directory_id for directory in self._named if directory.offline is not None
            ),
            moved=self.moved(),
            refused=self._refused(),
            feature_level_max=features.LATEST,
        )

    async def _pause(self) -> None:
        """Wait until the next heartbeat is due or there is something to report."""
        pause = DRAIN_BEAT_MS if self._progress.want_drain else self._times.heartbeat_ms
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause / 1_000):
                await self._wake.wait()


def _by_key(damaged: Sequence[DamagedReplica]) -> tuple[DamagedReplica, ...]:
    return tuple(sorted(damaged, key=lambda each: each.key))
