"""This node's membership: registers its process, keeps the session alive, lets its leaderships go when it stops.

Kept true:
  1. The node reports that it is ready only after it has applied the log beyond its own registration and the number of
     that registration is fsynced in each of its log directories (docs/metadata.md).
  2. It is heard of every `heartbeat_ms`, whatever else it does meanwhile, and at once when a log directory fails.
  3. A process whose place was taken by another ends.

Left to others: recovery, which is over before `run` (node.py); what fencing means
(replication/controller/controller.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from node.controller.controller_client import ControllerClient
from node.metadata.message_mapping import MessageMapping
from node.metadata.metadata_log import MetadataLog
from node.runtime import methods
from node.runtime.clock import Clock
from node.runtime.work import run_in
from replication.controller.events import DamagedReplica
from replication.controller.image import NodeRegistration
from storage.directory.log_directory import LogDirectory
from storage.files.executor import Executor
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
from tidelog.protocol.v1 import controller_pb2
from tidelog.types import Endpoint, Incarnation, NodeEpoch, NodeId

_log = logging.getLogger("node.registration")

CALL_MS: Final = 2_000
RETRY_MS: Final = 100
FULL_MS: Final = 1_000
DRAIN_BEAT_MS: Final = 50
"""While it drains, a node asks this often whether it may stop."""


Damaged: TypeAlias = Callable[[], Sequence[DamagedReplica]]
"""Replicas that lost some of what they had reported as held."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What a process says of itself. Listeners as registered; boot_id: of its machine."""

    node_id: NodeId
    incarnation: Incarnation
    listeners: Mapping[str, Endpoint]
    rack: str
    boot_id: bytes


_IDENTITY: Final = MessageMapping(Identity, controller_pb2.RegisterNodeRequest.DESCRIPTOR)
_DAMAGED: Final = MessageMapping(DamagedReplica, controller_pb2.DamagedReplica.DESCRIPTOR)


@dataclass(frozen=True, slots=True)
class MembershipTimes:
    """Milliseconds: between heartbeats, until silence ends a session, the longest drain."""

    heartbeat_ms: int = 400
    session_ms: int = 2_000
    drain_ms_max: int = 30_000


@dataclass(slots=True)
class _Progress:
    """How far this process has come."""

    node_epoch: NodeEpoch = NodeEpoch(-1)
    ready: bool = False
    want_drain: bool = False
    drained: asyncio.Event = field(default_factory=asyncio.Event)


class Registration:
    """One life of this node's process in the cluster."""

    def __init__(
        self,
        identity: Identity,
        directories: Sequence[tuple[LogDirectory, Executor]],
        metadata: MetadataLog,
        controller: ControllerClient,
        *,
        clock: Clock,
        times: MembershipTimes,
    ) -> None:
        """directories: each with the executor on which it is written to."""
        self._identity, self._directories = identity, tuple(directories)
        self._metadata, self._controller = metadata, controller
        self._clock, self._times = clock, times
        self._progress = _Progress()
        self._named: list[LogDirectory] = []
        """The directories that the registration names."""
        self._wake = asyncio.Event()
        for directory, _ in self._directories:
            self._listen(directory)

    def _listen(self, directory: LogDirectory) -> None:
        """A directory that fails is told of at once."""
        others = directory.on_offline

        def on_offline(failed: LogDirectory) -> None:
            others(failed)
            self._wake.set()

        directory.on_offline = on_offline

    @property
    def node_epoch(self) -> NodeEpoch:
        """Number of the registration, -1 before there is one."""
        return self._progress.node_epoch

    def entry(self) -> NodeRegistration | None:
        """This process in the committed image, None where it is not registered, or another process is."""
        node = self._metadata.image.nodes.get(self._identity.node_id)
        return node if node is not None and node.incarnation == self._identity.incarnation else None

    @property
    def unfenced(self) -> bool:
        """May this node lead and join, as far as it has heard?"""
        entry = self.entry()
        return entry is not None and not entry.fenced

    async def run(self, damaged: Damaged, found_later: Damaged = tuple) -> None:
        """Register and stay registered, until drained. damaged: replicas whose recovery found damage; found_later:
        those whose damage was found since, until they are out of their sets.

        Raises StaleNodeEpoch where another process took this node's place, InconsistentClusterId, InvalidRequest.
        """
        await self._metadata.wait_until(lambda: bool(self._metadata.image.cluster_id))
        await self._register(damaged())
        async with asyncio.TaskGroup() as tasks:
            others = [tasks.create_task(self._get_ready()), tasks.create_task(self._tell_voters())]
            beating = tasks.create_task(self._beat(damaged, found_later))
            beating.add_done_callback(lambda _: [task.cancel() for task in others])

    async def drain(self) -> None:
        """Let every leadership that another can take move away. Returns when none is left, when the longest time is
        over, or when no controller has answered for a session: then nobody is there to move anything."""
        if self._progress.node_epoch < 0:
            return
        self._progress.want_drain = True
        self._wake.set()
        try:
            async with asyncio.timeout((self._times.drain_ms_max + CALL_MS) / 1_000):
                await self._progress.drained.wait()
        except TimeoutError:
            _log.warning("stops without having been drained")

    # --- steps ----------------------------------------------------------------------------------------------------

    async def _register(self, damaged: Sequence[DamagedReplica]) -> None:
        request = self._request(damaged)  # what one attempt has named, maybe in vain, the next one names too
        said = ""
        while True:
            request.metadata_offset = self._metadata.image.offset
            try:
                answer = await self._controller.call(methods.CONTROLLER_REGISTER_NODE, request, timeout_ms=CALL_MS)
            except (InconsistentClusterId, InvalidRequest):
                raise
            except TidelogError as error:
                if type(error).__name__ != said:
                    said = type(error).__name__
                    level = logging.WARNING if isinstance(error, DuplicateNodeRegistration) else logging.INFO
                    _log.log(level, "not registered yet: %s", error.message)
                await self._clock.sleep_ms(RETRY_MS)
            else:
                self._progress.node_epoch = NodeEpoch(answer.node_epoch)
                _log.info("registered with number %d", answer.node_epoch)
                return

    def _request(self, damaged: Sequence[DamagedReplica]) -> controller_pb2.RegisterNodeRequest:
        identity = self._identity
        # What cannot be used is not named: as if the disk were not there.
        self._named = [directory for directory, _ in self._directories if directory.offline is None]
        if not self._named:
            raise KafkaStorageError(
                f"node {identity.node_id} has no log directory that works: check its disks, then start it again"
            )
        return controller_pb2.RegisterNodeRequest(
            cluster_id=self._metadata.image.cluster_id,
            directories=[
                controller_pb2.DirectoryState(
                    directory_id=directory.directory_id.bytes, last_registration=directory.last_registration
                )
                for directory in self._named
            ],
            intact_directories=[directory.directory_id.bytes for directory in self._named if directory.intact],
            damaged=_to_proto(damaged),
            **_IDENTITY.to_fields(identity),
        )

    async def _get_ready(self) -> None:
        """Apply the log beyond the registration, fsync its number in each directory named; then the node is ready.

        Raises KafkaStorageError where one of them fails before: unfenced without its number in it, that directory would
        count as an older copy for good. Started again, the node registers without it, or with it if it works.
        """
        number = self._progress.node_epoch
        await self._metadata.wait_until(lambda: self._metadata.image.offset > number)
        for directory, executor in self._directories:
            if directory in self._named:
                await self._write_number(directory, executor, number)
        failed = [directory.path for directory in self._named if directory.offline is not None]
        if failed:
            raise KafkaStorageError(
                f"log directory {', '.join(failed)} failed before the node was ready: start the node again, it goes on "
                "without what still fails"
            )
        self._progress.ready = True
        self._wake.set()

    async def _write_number(self, directory: LogDirectory, executor: Executor, number: NodeEpoch) -> None:
        """A full directory is waited for. Raises KafkaStorageError."""
        while directory.offline is None:
            try:
                await run_in(executor, lambda: directory.write_registration(number))
                return
            except DiskFull as error:
                _log.warning("not ready yet: %s", error.message)
                await self._clock.sleep_ms(FULL_MS)

    async def _beat(self, damaged: Damaged, found_later: Damaged) -> None:
        heard = self._clock.monotonic_ms()
        while not self._progress.drained.is_set():
            self._wake.clear()
            try:
                answer = await self._heartbeat(found_later())
            except NodeIdNotRegistered:
                await self._register(damaged())
            except StaleNodeEpoch:
                raise
            except TidelogError as error:
                _log.info("no heartbeat: %s", error.message)
                silent = self._clock.monotonic_ms() - heard
                if self._progress.want_drain and silent >= self._times.session_ms:
                    _log.warning("stops without being drained: no controller has answered for %d ms", silent)
                    self._progress.drained.set()
            else:
                heard = self._clock.monotonic_ms()
                if self._progress.want_drain and answer.drained:
                    self._progress.drained.set()
                    return
            await self._pause()

    async def _tell_voters(self) -> None:
        """Let the voters that are not the active controller hear the node too."""
        while True:
            await self._clock.sleep_ms(self._times.heartbeat_ms)
            async with asyncio.TaskGroup() as telling:
                for target in self._controller.standing_by():
                    telling.create_task(self._tell(target))

    async def _tell(self, target: Endpoint | None) -> None:
        with contextlib.suppress(TidelogError):  # a voter that does not hear this node would fence it, no more
            await self._controller.tell(
                target, methods.CONTROLLER_HEARTBEAT, self._beat_request(()), timeout_ms=self._times.heartbeat_ms
            )

    async def _heartbeat(self, damaged: Sequence[DamagedReplica]) -> controller_pb2.HeartbeatResponse:
        timeout_ms = max(self._times.heartbeat_ms, self._times.session_ms // 3)
        request = self._beat_request(damaged)
        return await self._controller.call(methods.CONTROLLER_HEARTBEAT, request, timeout_ms=timeout_ms)

    def _beat_request(self, damaged: Sequence[DamagedReplica]) -> controller_pb2.HeartbeatRequest:
        progress = self._progress
        return controller_pb2.HeartbeatRequest(
            node_id=self._identity.node_id,
            node_epoch=progress.node_epoch,
            metadata_offset=self._metadata.image.offset,
            ready=progress.ready,
            want_drain=progress.want_drain,
            damaged=_to_proto(damaged),
            offline_directories=[
                directory.directory_id.bytes for directory in self._named if directory.offline is not None
            ],
        )

    async def _pause(self) -> None:
        """Until the next heartbeat is due, or there is something to say."""
        pause = DRAIN_BEAT_MS if self._progress.want_drain else self._times.heartbeat_ms
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause / 1_000):
                await self._wake.wait()


def _to_proto(damaged: Sequence[DamagedReplica]) -> list[controller_pb2.DamagedReplica]:
    return [
        controller_pb2.DamagedReplica(**_DAMAGED.to_fields(each)) for each in sorted(damaged, key=lambda each: each.key)
    ]
