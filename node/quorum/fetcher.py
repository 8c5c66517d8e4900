"""Fetches the metadata log from the quorum's leader into this node's replica, and finds the leader if it is unknown.
Voters and all other nodes do this in the same way.

Invariants:
  1. Only the log of one cluster is ever appended. A directory without a cluster joins the leader's cluster first.
  2. The rules decide how an answer changes the log (replication/raft/quorum.py): an answer of an old leader has no
     effect.
  3. A voter reports its durable offset: it waits for its fsync before the next fetch, but only for a limited time.
  4. If the logs diverge, the replica is truncated by epoch, never below what is committed.
  5. A fetch names the replica it is meant for, which identifies itself first. Only answers of the leader itself are
     used, and nothing from an epoch later than its own. An invalid answer is logged, and another replica is tried.

Not here: serving fetches (handlers.py), use of the images (the subscribers of node/metadata/metadata_log.py).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from node.api.peers import Peers
from node.api.quorum_requests import FetchMetadataAnswer, FetchMetadataRequest, FetchSnapshotRequest
from node.api.table import QUORUM_FETCH_METADATA, QUORUM_FETCH_SNAPSHOT
from node.metadata.metadata_log import MetadataLog
from node.quorum.addresses import QuorumAddresses
from node.quorum.checks import epoch_of, offset_of, unchecked
from node.quorum.driver import QuorumDriver
from node.runtime.work import run_unless
from replication.raft.log_view import SnapshotId
from replication.raft.quorum import Quorum
from replication.raft.quorum_events import (
    BelowLogStart,
    FetchAnswered,
    FetchResult,
    LeaderReported,
    LogsDiverge,
    NewRecords,
    TakeRecords,
    TakeSnapshot,
    TruncateMetadataLog,
)
from replication.raft.voters import ReplicaKey
from tidelog.clock import Clock
from tidelog.errors import (
    ConnectionFailed,
    InconsistentClusterId,
    InvalidConfig,
    InvalidRequest,
    InvalidVoterKey,
    KafkaStorageError,
    SaslAuthenticationFailed,
    TidelogError,
    UnsupportedVersion,
)
from tidelog.types import Endpoint, EpochEnd, LeaderEpoch, Millis, NodeId, Offset

_log = logging.getLogger("node.metadata")

FETCH_BYTES: Final = 1 << 20
FETCH_WAIT_MS: Final = 500
ANSWER_MS: Final = 1_000
"""Timeout of an answer, in addition to its wait time."""

DURABLE_WAIT_MS: Final = 200
"""How long a voter waits for its own fsync before the next fetch. A leader that hears nothing for longer would
resign."""

SLOW_WAIT_MS: Final = 50
"""Wait time of a voter's fetch while its fsync is in progress: the voter will soon have a new durable offset to
report."""

RETRY_MS: Final = 100
"""Pause after every address has been tried, plus up to the same again at random."""

SECRET_LOG_MS: Final = 60_000
"""Interval of the line that says which node has another secret."""

FATAL: Final = (InconsistentClusterId, InvalidConfig, KafkaStorageError, UnsupportedVersion)
"""Errors of this node itself, which no other leader and no retry can fix."""

SNAPSHOT_BYTES_MAX: Final = 1 << 30
"""Largest snapshot that is fetched: it is assembled in memory."""

_NO_SNAPSHOT: Final = SnapshotId(Offset(0), LeaderEpoch(0))
_NO_END: Final = EpochEnd(LeaderEpoch(0), Offset(0))

Adopt = Callable[[str], Awaitable[None]]
"""Records the cluster id in all log directories of this node, durably."""


class QuorumFetcher:
    """Fetches the metadata log while another node leads."""

    def __init__(
        self,
        driver: QuorumDriver,
        metadata: MetadataLog,
        addresses: QuorumAddresses,
        *,
        adopt: Adopt,
        clock: Clock,
        rng: random.Random,
        peers: Peers,
    ) -> None:
        self._driver, self._metadata, self._addresses = driver, metadata, addresses
        self._adopt = adopt
        self._clock, self._rng, self._peers = clock, rng, peers
        self._cluster_id = ""
        self._in_touch = False
        self._logged: set[str] = set()
        self._refused_at: dict[Endpoint, Millis] = {}

    async def run(self, cluster_id: str | None) -> None:
        """Keep the replica up to date. cluster_id: the cluster of this node's directories, None if there is none yet.

        Raises the errors that a retry cannot fix: see FATAL.
        """
        self._cluster_id = cluster_id or ""
        await self._metadata.wait_until(lambda: self._driver.core is not None)
        while True:
            await self._metadata.wait_until(lambda: not self._core.leads)
            self._driver.changed.clear()
            for target in self._targets():
                await self._fetch_from(target)
                if self._core.leads or self._driver.changed.is_set():
                    break
            else:
                await self._pause()

    @property
    def _core(self) -> Quorum:
        core = self._driver.core
        assert core is not None
        return core

    def _targets(self) -> list[Endpoint]:
        """Possible addresses of the leader: its known address, then every other node that may know it."""
        leader = self._addresses.of(self._core.leader_id)
        return list(dict.fromkeys(found for found in (leader, *self._addresses.all_others()) if found is not None))

    async def _pause(self) -> None:
        """Pause before the next round. A change of the leader ends the pause."""
        pause = RETRY_MS + self._rng.randrange(RETRY_MS)
        await run_unless(self._driver.changed, lambda: self._clock.sleep_ms(pause))

    async def _fetch_from(self, target: Endpoint) -> None:
        """Fetch for as long as this target answers as the leader."""
        self._in_touch = False
        while not self._core.leads:
            await self._wait_durable()
            self._ensure_usable()
            log = self._metadata.log
            asked, asked_at = log.log_end_offset, self._clock.monotonic_ms()
            wait_ms = self._wait_ms()
            try:
                receiver = self._addresses.key_at(target)
                if receiver is None:
                    if await run_unless(self._driver.changed, partial(self._driver.introduce, target)) is None:
                        return
                    continue
                request = self._request(receiver, wait_ms)
                call = partial(self._peers.call, target, QUORUM_FETCH_METADATA, request)
                answer = await run_unless(self._driver.changed, partial(call, timeout_ms=ANSWER_MS + wait_ms))
                if answer is None:
                    return
                self._met(receiver.node_id, answer)
                if answer.error is not None:
                    raise answer.error
                _ensure_sound(receiver, answer)
            except TidelogError as error:
                if isinstance(error, ConnectionFailed | InvalidVoterKey):
                    self._addresses.missed(target)
                if isinstance(error, SaslAuthenticationFailed):
                    self._log_other_secret(target)
                else:
                    self._log_once(f"metadata cannot be fetched from {target}: {error.message}")
                return
            before = self._state()
            try:
                await self._take(target, receiver, asked, asked_at, answer)
            except FATAL:
                raise
            except TidelogError as error:
                self._log_once(f"metadata fetched from {target} cannot be applied: {error.message}", logging.WARNING)
                return
            has_waited = wait_ms > 0 and self._clock.monotonic_ms() - asked_at >= wait_ms / 2
            if self._state() == before and not has_waited:
                return  # an answer at once that changes nothing: the next fetch waits for the next round

    def _state(self) -> object:
        """All that an answer may change."""
        core, log = self._core, self._metadata.log
        return (
            core.epoch,
            core.leader_id,
            core.role,
            self._in_touch,
            self._cluster_id,
            log.log_start_offset,
            log.log_end_offset,
            log.high_watermark,
        )

    async def _wait_durable(self) -> None:
        log = self._metadata.log
        if not self._core.is_voter or log.durable_offset >= log.log_end_offset:
            return
        try:
            async with asyncio.timeout(DURABLE_WAIT_MS / 1_000):
                await self._metadata.wait_until(lambda: log.durable_offset >= log.log_end_offset)
        except TimeoutError:
            self._metadata.request_flush()

    def _ensure_usable(self) -> None:
        """Raise KafkaStorageError if the log directory is offline: the node must not report offsets that it could not
        write."""
        why = self._metadata.log.directory.offline
        if why is not None:
            raise KafkaStorageError(f"the log directory of the metadata log is offline: {why}")

    def _wait_ms(self) -> int:
        if not self._in_touch:
            return 0  # the first answer must return the high watermark at once
        log = self._metadata.log
        slow = self._core.is_voter and log.durable_offset < log.log_end_offset
        return SLOW_WAIT_MS if slow else FETCH_WAIT_MS

    def _request(self, receiver: ReplicaKey, wait_ms: int) -> FetchMetadataRequest:
        log, core = self._metadata.log, self._core
        return FetchMetadataRequest(
            cluster_id=self._cluster_id,
            node_id=core.me.node_id,
            directory_id=core.me.directory_id.bytes,
            current_leader_epoch=core.epoch,
            fetch_offset=log.log_end_offset,
            last_fetched_epoch=self._metadata.view().last_epoch,
            max_wait_ms=wait_ms,
            max_bytes=FETCH_BYTES,
            durable_offset=log.durable_offset,
            high_watermark=log.high_watermark,
            receiver=unchecked(receiver),
        )

    def _met(self, source: NodeId, answer: FetchMetadataAnswer) -> None:
        """Record the leader and the address that an error names."""
        if answer.error is None:
            return
        leader, named = answer.leader_id, answer.error.leader
        if named is not None and named.node_id == leader != self._core.me.node_id and named.endpoint.host:
            self._addresses.met(leader, named.endpoint)
        self._driver.post(LeaderReported(self._clock.monotonic_ms(), answer.leader_epoch, leader, source))

    async def _take(
        self, target: Endpoint, receiver: ReplicaKey, asked: Offset, asked_at: Millis, answer: FetchMetadataAnswer
    ) -> None:
        if answer.cluster_id != self._cluster_id:
            await self._join(answer.cluster_id)
        now = self._clock.monotonic_ms()
        leader, epoch = answer.leader_id, answer.leader_epoch
        event = FetchAnswered(now, asked_at, leader, epoch, asked, _result(answer))
        snapshots: list[SnapshotId] = []
        await self._driver.take(event, lambda effect: self._do(effect, answer, snapshots))
        for snapshot in snapshots:
            await self._fetch_snapshot(target, receiver, snapshot, lambda: self._core.epoch == epoch)
        if not self._in_touch and self._core.leader_id == leader:
            _log.info("fetching metadata from node %d at %s", answer.leader_id, target)
            self._in_touch = True
            self._logged.clear()

    def _do(
        self,
        effect: TakeRecords | TruncateMetadataLog | TakeSnapshot,
        answer: FetchMetadataAnswer,
        snapshots: list[SnapshotId],
    ) -> None:
        match effect:
            case TakeRecords(high_watermark):
                if answer.records:
                    self._metadata.append_fetched(answer.records, answer.epochs, answer.leader_epoch)
                self._metadata.commit(Offset(min(high_watermark, self._metadata.end)))
            case TruncateMetadataLog(offset):
                _log.info(
                    "metadata log truncated from offset %d to %d: it diverged from the leader's",
                    self._metadata.end,
                    offset,
                )
                self._metadata.truncate_to(offset)
            case TakeSnapshot(snapshot):
                snapshots.append(snapshot)

    async def _fetch_snapshot(
        self, target: Endpoint, receiver: ReplicaKey, snapshot: SnapshotId, still_leads: Callable[[], bool]
    ) -> None:
        """Fetch a snapshot from the leader in parts, and restart the log behind it."""
        core = self._core
        pieces: list[bytes] = []
        position, size = 0, 1
        while position < size:
            request = FetchSnapshotRequest(
                cluster_id=self._cluster_id,
                replica=unchecked(core.me),
                current_leader_epoch=core.epoch,
                snapshot=snapshot,
                position=position,
                max_bytes=FETCH_BYTES,
                receiver=unchecked(receiver),
            )
            answer = await self._peers.call(target, QUORUM_FETCH_SNAPSHOT, request, timeout_ms=ANSWER_MS)
            if answer.error is not None:
                self._log_once(f"the snapshot cannot be fetched from {target}: {answer.error.message}")
                return
            if not answer.data or answer.size > SNAPSHOT_BYTES_MAX:
                raise InvalidRequest(
                    f"invalid part of a snapshot of {answer.size} bytes: {len(answer.data)} bytes at {position}"
                )
            pieces.append(answer.data)
            position, size = position + len(answer.data), answer.size
        await self._metadata.install_snapshot(snapshot, b"".join(pieces), still_leads)
        _log.info("installed a metadata snapshot up to offset %d, %d bytes", snapshot.end_offset, size)

    async def _join(self, cluster_id: str) -> None:
        if self._cluster_id:
            raise InvalidRequest(
                f"node {self._core.me.node_id} belongs to cluster {self._cluster_id}, the leader of the metadata "
                f"quorum to cluster {cluster_id}: check controller.quorum.bootstrap.servers"
            )
        await self._adopt(cluster_id)
        self._cluster_id = cluster_id
        _log.info("joined cluster %s", cluster_id)

    def _log_other_secret(self, target: Endpoint) -> None:
        """Nodes have no other password than the secret of the cluster. Logged once in `SECRET_LOG_MS` for each node."""
        at = self._clock.monotonic_ms()
        last = self._refused_at.get(target)
        if last is None or at - last >= SECRET_LOG_MS:
            self._refused_at[target] = at
            _log.error(
                "cluster.secret.file differs from that of node %s: give both the same contents, and start this node "
                "again",
                target,
            )

    def _log_once(self, text: str, level: int = logging.INFO) -> None:
        """Log the text once, until a fetch succeeds again."""
        if text not in self._logged:
            self._logged.add(text)
            _log.log(level, "%s", text)


def _ensure_sound(receiver: ReplicaKey, answer: FetchMetadataAnswer) -> None:
    """Raise InvalidRequest for an answer that no leader sends: without an error only the leader answers, and it has no
    epoch above its own."""
    if answer.leader_id != receiver.node_id:
        raise InvalidRequest(f"{receiver} answered in the name of node {answer.leader_id}: it is faulty")
    epoch_of(answer.leader_epoch)
    snapshot, ends = answer.snapshot or _NO_SNAPSHOT, answer.diverging or _NO_END
    offset_of(snapshot.end_offset)
    named = [snapshot.epoch, ends.epoch, *(entry.epoch for entry in answer.epochs)]
    if max(named) > answer.leader_epoch or snapshot.epoch < 0:
        raise InvalidRequest(
            f"{receiver} leads epoch {answer.leader_epoch} but sent the epochs {sorted(named)}: it is faulty"
        )


def _result(answer: FetchMetadataAnswer) -> FetchResult:
    if answer.snapshot is not None:
        return BelowLogStart(answer.snapshot)
    if answer.diverging is not None:
        return LogsDiverge(answer.diverging)
    return NewRecords(answer.high_watermark)
