"""The fetches of this node from one leading node: one stream, many partitions in each request.

Each request contains all fetches that became ready since the last one, so one turn of the loop sends one message for
any number of partitions. A follower's durable offset is reported as soon as it moves. The fetch of a member of the
in-sync set waits without limit, so messages in both directions contain only partitions with changes: the stream is what
KIP-227 calls a fetch session.

Invariants:
  1. A fetch id is used once per process, so an answer is never matched to another fetch.
  2. A stream is closed when it ends, fails, or is silent for longer than its fetches may wait. All fetches that were
     open on it are sent again on the next stream.
  3. The pause before a reconnect grows up to a limit, and is partly random so that nodes do not reconnect together.

Not here: which offsets to fetch and which answers to accept (replication/partition/follower.py).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from node.api.fetch import DurablePosition, FetchingReplica, FetchRequest, PartitionFetch
from node.api.peers import Peers, ValueStream
from node.api.table import DATA_FETCH_STREAM
from node.replicas.follower_replica import FollowerReplica
from node.replicas.replica_config import ReplicaConfig
from node.runtime.duplex import run_duplex
from node.runtime.limits import ENTRIES_MAX
from replication.partition.move_throttle import MoveThrottle
from tidelog.clock import Clock
from tidelog.errors import ConnectionFailed, TidelogError
from tidelog.record_exchange import FetchAnswer
from tidelog.types import Endpoint, Isolation, Millis, NodeId, Offset

_log = logging.getLogger("node.replica_fetcher")

MOVE_BYTES_MAX: Final = 128 << 10
"""Largest fetch of a replica that is being moved to this node. The leader reads it, and this node checks and writes it,
within one turn of the loop, in which the partitions in use wait: that takes milliseconds for 1 MiB."""

PIECES_MS: Final = 60_000
"""How long a replica that is being moved fetches so little. Each piece takes a round trip: a replica that is behind
after that is large, or grows as fast as they arrive, and then its move would never end."""

V = TypeVar("V")


def _first(waiting: dict[FollowerReplica, V]) -> tuple[dict[FollowerReplica, V], dict[FollowerReplica, V]]:
    """The entries that fit into one request, and the rest."""
    if len(waiting) <= ENTRIES_MAX:
        return waiting, {}
    entries = list(waiting.items())
    return dict(entries[:ENTRIES_MAX]), dict(entries[ENTRIES_MAX:])


class ReplicaFetcher:
    """The stream to one leading node, and the fetches open on it."""

    def __init__(
        self,
        leader: NodeId,
        replica: FetchingReplica,
        *,
        endpoint: Callable[[], Endpoint | None],
        fetch_ids: Iterator[int],
        clock: Clock,
        rng: random.Random,
        peers: Peers,
        config: ReplicaConfig,
        throttle: MoveThrottle,
        wake_soon: Callable[[], None],
    ) -> None:
        """endpoint: returns the leader's address in the newest metadata. fetch_ids: shared by all fetchers. throttle:
        for replicas that are being moved to this node, shared by all fetchers. wake_soon: requests a tick."""
        self.leader = leader
        self._replica = replica
        self._endpoint = endpoint
        self._fetch_ids = fetch_ids
        self._clock = clock
        self._rng = rng
        self._peers = peers
        self._config = config
        self._throttle = throttle
        self._throttled: dict[FollowerReplica, None] = {}
        self._wanted: dict[FollowerReplica, None] = {}
        self._durable: dict[FollowerReplica, tuple[Offset, Offset]] = {}
        """Unsent reports: durable offset and log start."""
        self._open: dict[int, FollowerReplica] = {}
        self._number: dict[FollowerReplica, int] = {}
        self._stream: ValueStream[FetchRequest, FetchAnswer] | None = None
        self._connected_to: Endpoint | None = None
        self._silent_ticks = 0
        self._heard = False
        """True if an answer arrived since the last tick."""
        self._failures = 0
        self._wake_soon = wake_soon
        self._wake = asyncio.Event()
        self._stopping = False

    # --- requests of the followers ---

    def want(self, follower: FollowerReplica) -> None:
        """Send a fetch."""
        self._wanted[follower] = None
        # The fetch contains the durable offset. An unsent report is older: after a truncation it may be too high, and
        # the leader would commit records that this replica no longer has.
        self._durable.pop(follower, None)
        self._wake.set()

    def report(self, follower: FollowerReplica, durable_offset: Offset, log_start: Offset) -> None:
        """Report a durable offset or log start that moved while the fetch waits."""
        self._durable[follower] = durable_offset, log_start
        self._wake.set()

    def forget(self, follower: FollowerReplica) -> None:
        """Forget a partition that no longer follows this leader in this epoch."""
        self._wanted.pop(follower, None)
        self._throttled.pop(follower, None)
        self._durable.pop(follower, None)
        self._close(follower)

    def _close(self, follower: FollowerReplica) -> None:
        number = self._number.pop(follower, None)
        if number is not None:
            del self._open[number]

    def stop(self) -> None:
        """Close the stream; `run` returns."""
        self._stopping = True
        self._wake.set()
        if self._stream is not None:
            self._stream.close()

    def due(self, now: Millis) -> Millis:
        """When the next `tick` is needed if nothing happens before."""
        return now if self._throttled else Millis(now + self._config.replication.fetch_wait_ms)

    def tick(self, ticks: int) -> None:
        """Act on the clock after this number of ticks. Close a stream that is silent for too long, or that leads to a
        former address of the leader.

        Silence is counted in ticks, so that a pause of this node does not count as silence of the leader.
        """
        if self._throttled:
            is_open = self._throttle.is_open(self._clock.monotonic_ms())
            for follower in [each for each in self._throttled if is_open or not each.moves_here]:
                del self._throttled[follower]
                self.want(follower)
        if self._stream is None:
            return
        self._silent_ticks += 1 if self._heard else ticks
        self._heard = False
        patience = self._config.replication.fetch_wait_ms + self._config.fetch_patience_ms
        if self._open and self._silent_ticks * self._config.tick_ms > patience:
            _log.warning("node %d has not answered a fetch for %d ms: reconnecting", self.leader, patience)
            self._stream.close()
        elif self._endpoint() != self._connected_to:
            _log.info("the address of node %d has changed: reconnecting", self.leader)
            self._stream.close()

    # --- the stream ---

    async def run(self) -> None:
        """Keep a stream open while any partition follows this leader. Returns after `stop`."""
        while not self._stopping:
            if not self._wanted and not self._open:
                self._wake.clear()
                await self._wake.wait()
                continue
            try:
                await self._serve_one_stream()
            except TidelogError as error:
                _log.info("the fetch stream to node %d ended, reconnecting if needed: %s", self.leader, error.message)
            self._lose_stream()
            if not self._stopping:
                await self._clock.sleep_ms(self._pause())

    async def _serve_one_stream(self) -> None:
        endpoint = self._endpoint()
        if endpoint is None:
            raise ConnectionFailed(f"node {self.leader} has no known address on listener {self._config.listener}")
        self._connected_to = endpoint
        stream = await self._peers.open_stream(endpoint, DATA_FETCH_STREAM)
        if self._stopping:  # `stop` was called while connecting and had no stream to close
            stream.close()
            return
        self._stream, self._silent_ticks, self._heard = stream, 0, True
        try:
            await run_duplex(self._receive(stream), self._send(stream))
        finally:
            stream.close()

    async def _send(self, stream: ValueStream[FetchRequest, FetchAnswer]) -> None:
        while not self._stopping:
            if not self._wanted and not self._durable:
                self._wake.clear()
                await self._wake.wait()
                continue
            request = self._next_request()
            if request.partitions or request.durable_positions:
                await stream.send(request)

    def _next_request(self) -> FetchRequest:
        config = self._config.replication
        fetches: list[PartitionFetch] = []
        wanted, self._wanted = _first(self._wanted)
        durable, self._durable = _first(self._durable)
        if wanted and not self._open:
            self._silent_ticks, self._heard = 0, True
        now = self._clock.monotonic_ms()
        is_open = self._throttle.is_open(now)
        for follower in wanted:
            if follower.moves_here and not is_open:
                self._throttled[follower] = None
                self._wake_soon()
                continue
            fetch_id = next(self._fetch_ids)
            in_pieces = follower.moves_here and now - follower.followed_since < PIECES_MS
            most = min(config.fetch_bytes_max, MOVE_BYTES_MAX) if in_pieces else config.fetch_bytes_max
            fetch = follower.next_fetch(fetch_id, most)
            if fetch is not None:
                fetches.append(fetch)
                self._close(follower)
                self._open[fetch_id], self._number[follower] = follower, fetch_id
        positions = [
            DurablePosition(follower.topic_id, follower.key.partition, follower.leader_epoch, offset, log_start)
            for follower, (offset, log_start) in durable.items()
        ]
        return FetchRequest(self._replica, config.fetch_wait_ms, 1, Isolation.READ_UNCOMMITTED, fetches, positions)

    async def _receive(self, stream: ValueStream[FetchRequest, FetchAnswer]) -> None:
        while (response := await stream.receive()) is not None:
            self._failures = 0
            self._silent_ticks, self._heard = 0, True
            for answer in response.partitions:
                follower = self._open.get(answer.correlation_id)
                if follower is not None:  # otherwise it answers a fetch of an earlier leader epoch, or one sent again
                    if not answer.waits:
                        del self._open[answer.correlation_id], self._number[follower]
                    if follower.moves_here:
                        self._throttle.spend(len(answer.records), self._clock.monotonic_ms())
                    follower.answered(answer)

    def _lose_stream(self) -> None:
        self._stream = None
        lost, self._number = self._number, {}
        self._open.clear()
        self._durable.clear()
        for follower in lost:
            follower.stream_broken()

    def _pause(self) -> int:
        bound = min(self._config.reconnect_ms_min << min(self._failures, 10), self._config.reconnect_ms_max)
        self._failures += 1
        return bound // 2 + self._rng.randrange(bound // 2 + 1)


class LeaderFetchers:
    """The fetchers by leader. Creates one when the first replica follows that leader, and runs their tasks."""

    def __init__(self, create: Callable[[NodeId], ReplicaFetcher]) -> None:
        self._create = create
        self._fetchers: dict[NodeId, ReplicaFetcher] = {}
        self._tasks: asyncio.TaskGroup | None = None

    def of(self, leader: NodeId) -> ReplicaFetcher:
        """The fetcher of this leader, created if there is none."""
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            fetcher = self._fetchers[leader] = self._create(leader)
            if self._tasks is not None:
                self._tasks.create_task(fetcher.run())
        return fetcher

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Run all fetchers in this group, also those that are created later."""
        self._tasks = tasks
        for fetcher in self._fetchers.values():
            tasks.create_task(fetcher.run())

    def stop(self) -> None:
        """End the tasks."""
        self._tasks = None
        for fetcher in self._fetchers.values():
            fetcher.stop()

    def tick(self, ticks: int) -> None:
        """Report to each fetcher that this number of ticks has passed."""
        for fetcher in self._fetchers.values():
            fetcher.tick(ticks)

    def due_times(self, now: Millis) -> list[Millis]:
        """The times at which the fetchers need their next ticks."""
        return [fetcher.due(now) for fetcher in self._fetchers.values()]
