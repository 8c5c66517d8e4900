"""Driver of the metadata quorum: connects the rules (replication/raft/quorum.py) to disk, network and clock.

Invariants:
  1. Events are processed one after the other, each one's effects in order. Before each event the rules have received
     the present state of the log. A vote is fsynced before any later message is sent.
  2. A query for the leader is answered with what the rules know at that moment.
  3. A log that can no longer be written ends the node: after a disk error the contents on disk are unknown. A full disk
     ends only the leadership.
  4. No message ends the node. An event that the rules fail to process leaves them unchanged. A message that cannot be
     sent or an epoch that cannot be opened ends the leadership. Either is logged once, with its cause. A failure while
     applying committed metadata ends the node; its next start applies them again.
  5. A vote in the reserve below the largest epoch is not used: this node could never vote again.

Not here: the rules (replication/raft/quorum.py), fetching (fetcher.py), the controller
(node/controller/controller_driver.py).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, Final, TypeVar, assert_never

from node.api.api import Answered, Api, Asked
from node.api.peers import Peers
from node.api.quorum_requests import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    IntroduceAnswer,
    IntroduceRequest,
    QuorumVoteRequest,
)
from node.api.table import QUORUM_BEGIN_QUORUM_EPOCH, QUORUM_END_QUORUM_EPOCH, QUORUM_INTRODUCE, QUORUM_VOTE
from node.metadata.metadata_log import MetadataLog
from node.quorum.addresses import QuorumAddresses
from node.quorum.checks import key_of, unchecked
from node.quorum.state import QuorumView, ensure_usable, read_state, write_state
from node.runtime.ticker import Ticker
from node.runtime.work import run_in
from replication.common_events import ClockTicked, Report
from replication.controller import features
from replication.controller.image import ClusterImage
from replication.controller.metadata_records import ClusterRecord, VotersRecord
from replication.raft import quorum_events as events
from replication.raft.log_view import MetadataLogView
from replication.raft.quorum import Quorum
from replication.raft.roles import QuorumState
from replication.raft.timeouts import QuorumTimes
from replication.raft.voters import ReplicaKey, Voter, VoterSet
from storage.files.disk_executor import Executor
from storage.files.file_system import Files
from tidelog.clock import Clock
from tidelog.errors import (
    ConnectionFailed,
    DiskFull,
    InconsistentClusterId,
    InvalidRequest,
    NotLeaderOrFollower,
    TidelogError,
    UnknownServerError,
)
from tidelog.records import ControlVoter, LeaderChange
from tidelog.types import Endpoint, LeaderEpoch, Millis, NodeId

_log = logging.getLogger("node.quorum")

FEATURE_LEVEL: Final = features.LATEST
"""Feature level of a new cluster's records: the latest."""

TICK_MS: Final = 25
"""Precision of timeouts: a fraction of the shortest one, a round of votes. Ticks without effect are skipped."""

SEND_MS: Final = 1_000
"""Timeout of a vote request or an announcement. It is sent again before that."""

FULL_MS: Final = 1_000
"""Pause before the next attempt to write a vote to a full disk."""

FAREWELL_MS: Final = 500
"""How long a stopping node waits for the voters to receive its resignation."""

CONFIRMING_MAX: Final = 8
"""Limit of nodes queried at once for their leadership: those of one election, and some that only a faulty node has
named."""

DEFECTS_MAX: Final = 100
"""Limit of different defects that are logged."""

R = TypeVar("R")

TakeFetched = Callable[[events.TakeRecords | events.TruncateMetadataLog | events.TakeSnapshot], None]
"""Applies the contents of an answer as the rules decide."""


class QuorumDriver:
    """Runs one node's part in the quorum, from `run` on."""

    def __init__(
        self,
        me: ReplicaKey,
        metadata: MetadataLog,
        view: QuorumView,
        addresses: QuorumAddresses,
        *,
        times: QuorumTimes,
        files: Files,
        executor: Executor,
        clock: Clock,
        rng: random.Random,
        peers: Peers,
        on_lead: Callable[[ClusterImage], None],
        on_resign: Callable[[], None],
    ) -> None:
        """on_lead: called with the image of the whole log once this node leads and has committed a record of its own
        epoch. on_resign: called when it no longer leads."""
        self.me = me
        self.core: Quorum | None = None
        """None until the node's vote has been read."""
        self.changed = asyncio.Event()
        """Set whenever the leader or the epoch changes; the task that waits for it clears it."""
        self._metadata, self._view, self._addresses = metadata, view, addresses
        self._times = times
        self._files, self._executor, self._clock, self._rng = files, executor, clock, rng
        self._peers = peers
        self._on_lead, self._on_resign = on_lead, on_resign
        self._cluster_id: Callable[[], str] = str
        self._first_cluster = ""
        self._first_voters: tuple[Voter, ...] = ()
        self._events: deque[tuple[events.Event, TakeFetched | None, asyncio.Future[None] | None]] = deque()
        self._log_moved = False
        self._wake = asyncio.Event()
        self._ticker = Ticker(clock, TICK_MS, self._tick)
        self._requests = 0
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._sending: asyncio.TaskGroup | None = None
        self._farewells: set[asyncio.Task[None]] = set()
        self._confirming: set[NodeId] = set()
        self._defects: set[str] = set()

    async def run(self, *, cluster_id: Callable[[], str], form: tuple[str, tuple[Voter, ...]] | None = None) -> None:
        """Take part until cancelled or until the disk fails.

        cluster_id: returns the cluster of this node's directories, "" for none. form: id and voters of a cluster that
        this node forms as one of the voters. Raises KafkaStorageError, CorruptLog.
        """
        self._cluster_id = cluster_id
        if form is not None:
            self._first_cluster, self._first_voters = form
            self._addresses.expect(self._first_voters)
        log = self._metadata.log
        try:
            state = await run_in(self._executor, lambda: read_state(self._files, log.path))
        except OSError as error:
            raise log.directory.fail(f"reading the quorum state in {log.path}", error) from error
        ensure_usable(state, self._metadata.view(), log.path)
        self.core = Quorum(
            self.me, state, self._log_view(), times=self._times, rng=self._rng, at=self._clock.monotonic_ms()
        )
        self._show()
        if form is not None or self.core.log.voters.members == (self.me,):
            self.post(events.Called(self._clock.monotonic_ms()))
        try:
            async with asyncio.TaskGroup() as tasks:
                self._sending = tasks
                tasks.create_task(self._handle_events(), name="quorum events")
                tasks.create_task(self._ticker.run(), name="quorum ticks")
                tasks.create_task(self._watch_log(), name="quorum log")
        finally:
            self._sending = None
            self._on_resign()

    # --- interface ------------------------------------------------------------------------------------------------

    def post(self, event: events.Event) -> None:
        """Queue an event for the rules."""
        self._events.append((event, None, None))
        self._wake.set()

    def silence_ms(self) -> int:
        """Milliseconds since a leader was last heard from."""
        return 0 if self.core is None else self.core.silence_ms(self._clock.monotonic_ms())

    def unconfirmed_ms(self) -> int | None:
        """Milliseconds since a majority of the voters confirmed that this node leads; None if it does not."""
        return None if self.core is None else self.core.unconfirmed_ms(self._clock.monotonic_ms())

    def log_moved(self) -> None:
        """The log's end, durable offset, high watermark or voters have changed."""
        self._log_moved = True
        self._wake.set()

    def leader_refused(self, epoch: LeaderEpoch, leader_id: NodeId) -> None:
        """The leader of this epoch refused a connection of this node."""
        if self.core is not None:
            self.post(events.LeaderRefused(self._clock.monotonic_ms(), epoch, leader_id))

    async def take(self, event: events.Event, take: TakeFetched) -> None:
        """Queue the answer to a fetch, and return once its effects are applied. Raises what `take` raises."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._events.append((event, take, done))
        self._wake.set()
        await done

    async def ask(self, request: Callable[[int], events.Event], expected: type[R]) -> R:
        """Queue a request of another node and wait for the answer. Raises the error of a rejection."""
        if self.core is None:
            raise NotLeaderOrFollower(f"node {self.me.node_id} has not joined a quorum yet")
        self._requests += 1
        number = self._requests
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        try:
            self.post(request(number))
            result = await answer
        finally:
            del self._answers[number]
        if isinstance(result, TidelogError):
            raise result
        assert isinstance(result, expected), f"the quorum answered {result}"
        return result

    def refused(self, error: TidelogError) -> None:
        """The log rejected an append, or failed to make it durable: the decision behind it is not in the log, or not
        yet."""
        if not isinstance(error, DiskFull | UnknownServerError):
            self._metadata.failure = error
            self._metadata.wake()
        elif self._view.leads:
            _log.error("this node stops leading the metadata quorum: %s", error.message)
        self.post(events.AppendRefused(self._clock.monotonic_ms()))

    async def resign(self) -> None:
        """Resign as leader and announce the preferred successors. Returns when the voters know it, or after
        `FAREWELL_MS`."""
        if self.core is None:
            return
        self.post(events.ResignRequested(self._clock.monotonic_ms()))
        try:
            async with asyncio.timeout(FAREWELL_MS / 1_000):
                await self._metadata.wait_until(lambda: not self._view.leads)
                while self._farewells:
                    await asyncio.wait(tuple(self._farewells))
        except TimeoutError:
            _log.info(
                "metadata quorum: not every voter has confirmed this node's resignation; they elect after a timeout"
            )

    # --- tasks ----------------------------------------------------------------------------------------------------

    def _tick(self, now: Millis, _: int) -> Millis | None:
        """Queue a tick if it has an effect now. Returns when the next one has."""
        assert self.core is not None
        due = self.core.due
        if due is not None and due <= now and not any(isinstance(event, ClockTicked) for event, _, _ in self._events):
            self.post(ClockTicked(now))
        return due

    async def _watch_log(self) -> None:
        """Raise the error that made the log unusable."""
        await self._metadata.wait_until(lambda: False)

    async def _handle_events(self) -> None:
        while True:
            while self._log_moved or self._events:
                if self._log_moved:
                    self._log_moved = False
                    await self._handle(events.MetadataLogChanged(self._clock.monotonic_ms(), self._log_view()), None)
                    continue
                event, take, done = self._events.popleft()
                try:
                    await self._handle(event, take)
                except TidelogError as error:
                    if done is None:
                        raise
                    if not done.done():
                        done.set_exception(error)
                if done is not None and not done.done():
                    done.set_result(None)
            self._wake.clear()
            await self._wake.wait()

    def _note_defect(self, doing: str, defect: Exception) -> UnknownServerError:
        """Log the defect once. Returns the error for a caller."""
        text = f"{doing} failed by a defect ({type(defect).__name__}: {defect})"
        if text not in self._defects and len(self._defects) < DEFECTS_MAX:
            self._defects.add(text)
            _log.error("metadata quorum: %s", text, exc_info=defect)
        return UnknownServerError(f"node {self.me.node_id}: {text}")

    async def _handle(self, event: events.Event, take: TakeFetched | None) -> None:
        if self._view.leads and self._metadata.log.directory.offline is not None:
            # This node cannot append, so another one should lead.
            await self._give(events.AppendRefused(self._clock.monotonic_ms()), None)
        await self._give(event, take)

    async def _give(self, event: events.Event, take: TakeFetched | None) -> None:
        assert self.core is not None
        led = self._view.leads
        try:
            effects = self.core.handle(event)
        except Exception as defect:  # noqa: BLE001 - the rules are unchanged after any exception
            self._refuse(event, self._note_defect(f"processing {type(event).__name__}", defect))
            return
        due = self.core.due
        if due is not None:
            self._ticker.by(due)
        if led or not self.core.leads or not any(isinstance(effect, events.Persist) for effect in effects):
            self._show()  # else it leads by its own vote alone, which is published only once the vote is durable
        for effect in effects:
            match effect:
                case events.Persist(state):
                    await self._persist(state)
                    self._show()
                case events.TakeRecords() | events.TruncateMetadataLog() | events.TakeSnapshot():
                    assert take is not None, "only an answer to a fetch has this effect"
                    take(effect)
                case events.Commit(offset):
                    self._metadata.commit(offset)
                case _:
                    self._carry_out_or_step_down(effect)

    def _carry_out_or_step_down(self, effect: events.Effect) -> None:
        try:
            self._carry_out(effect)
        except TidelogError:
            raise
        except Exception as defect:  # noqa: BLE001 - it must not end the node
            self._note_defect(f"executing {type(effect).__name__}", defect)
            if self._view.leads:
                self.post(events.AppendRefused(self._clock.monotonic_ms()))

    def _refuse(self, event: events.Event, error: UnknownServerError) -> None:
        """Answer the request whose processing failed. If the event belongs to no request, end the leadership."""
        waiting = self._answers.get(getattr(event, "request_id", 0))
        if waiting is not None and not waiting.done():
            waiting.set_exception(error)
        elif self._view.leads and not isinstance(event, events.AppendRefused):
            self.post(events.AppendRefused(self._clock.monotonic_ms()))

    # --- effects --------------------------------------------------------------------------------------------------

    def _carry_out(self, effect: events.Effect) -> None:
        match effect:
            case events.Answer(request_id, answer):
                waiting = self._answers.get(request_id)
                if waiting is not None and not waiting.done():
                    waiting.set_result(answer)
            case events.SendVote() | events.Announce() | events.ConfirmLeader():
                self._send(effect)
            case events.OpenEpoch(epoch, granting):
                self._open_epoch(epoch, granting)
            case events.Activate(epoch):
                _log.info("this node leads the metadata quorum in epoch %d, log end %d", epoch, self._metadata.end)
                self._on_lead(self._metadata.replayed())
            case events.StopLeading():
                _log.info("this node no longer leads the metadata quorum")
                self._on_resign()
            case Report(text):
                _log.warning("%s", text)
            case _:
                raise AssertionError(f"effect {effect} is handled elsewhere")

    async def _persist(self, state: QuorumState) -> None:
        """Write the vote durably. On a full disk wait and try again: without its vote on disk this node sends
        nothing."""
        log = self._metadata.log
        said = False
        while True:
            try:
                await run_in(self._executor, lambda: write_state(self._files, log.path, state))
                return
            except OSError as error:
                failure = log.directory.fail(f"writing the quorum state in {log.path}", error)
            if not isinstance(failure, DiskFull):
                raise failure
            if not said:
                said = True
                _log.error("this node takes no part in the metadata quorum for now: %s", failure.message)
            await self._clock.sleep_ms(FULL_MS)

    def _open_epoch(self, epoch: LeaderEpoch, granting: tuple[ReplicaKey, ...]) -> None:
        voters = self._log_view().voters
        change = LeaderChange(self.me.node_id, _control(voters.members), _control(granting))
        try:
            self._metadata.append_leader_change(change, epoch)
            if not self._metadata.replayed().cluster_id:
                assert self._first_cluster, "elected without voters in the log and without forming a cluster"
                cluster = ClusterRecord(self._first_cluster, FEATURE_LEVEL)
                self._metadata.append([cluster, VotersRecord(self._first_voters)], epoch)
        except DiskFull as error:
            self.refused(error)

    def _log_view(self) -> MetadataLogView:
        """The log; before its first voters record, with the voters of the cluster that is being formed."""
        view = self._metadata.view()
        if view.voters.members or not self._first_voters:
            return view
        return replace(view, voters=VoterSet.of(self._first_voters))

    def _show(self) -> None:
        """Publish leader and epoch to the other parts of this node."""
        core = self.core
        assert core is not None
        if self._view.show(core.leader_id, core.epoch, self._addresses.of(core.leader_id)):
            self.changed.set()
            self._metadata.wake()

    # --- sending --------------------------------------------------------------------------------------------------

    def _send(self, effect: events.SendVote | events.Announce | events.ConfirmLeader) -> None:
        match effect:
            case events.SendVote(request):
                self._start(lambda: self._send_vote(request))
            case events.Announce(to, announced):
                self._send_announcement(to, announced)
            case events.ConfirmLeader(node_id):
                if node_id not in self._confirming and len(self._confirming) < CONFIRMING_MAX:
                    self._confirming.add(node_id)
                    self._start(lambda: self._confirm_leader(node_id))
            case _:
                assert_never(effect)

    def _send_announcement(self, to: ReplicaKey, request: events.BeginEpoch | events.EndEpoch) -> None:
        if isinstance(request, events.BeginEpoch):
            begin = BeginQuorumEpochRequest(self._cluster_id(), request.leader_id, request.epoch, unchecked(to))
            self._start(lambda: self._announce(to.node_id, QUORUM_BEGIN_QUORUM_EPOCH, begin), resigns=True)
            return
        successors = tuple(map(unchecked, request.successors))
        end = EndQuorumEpochRequest(self._cluster_id(), request.leader_id, request.epoch, successors, unchecked(to))
        farewell = self._start(lambda: self._announce(to.node_id, QUORUM_END_QUORUM_EPOCH, end))
        self._farewells.add(farewell)
        farewell.add_done_callback(self._farewells.discard)

    def _start(self, send: Callable[[], Coroutine[Any, Any, None]], *, resigns: bool = False) -> asyncio.Task[None]:
        """resigns: a defect while sending ends the leadership."""
        assert self._sending is not None
        return self._sending.create_task(self._guarded(send, resigns))

    async def _guarded(self, send: Callable[[], Coroutine[Any, Any, None]], resigns: bool) -> None:
        try:
            await send()
        except Exception as defect:  # noqa: BLE001 - messages that matter are sent again
            self._note_defect("sending a message", defect)
            if resigns and self._view.leads:
                self.post(events.AppendRefused(self._clock.monotonic_ms()))

    async def _send_vote(self, request: events.VoteRequest) -> None:
        asked = QuorumVoteRequest(
            self._cluster_id(),
            request.epoch,
            unchecked(request.candidate),
            unchecked(request.voter),
            request.last_epoch,
            request.log_end,
            request.pre_vote,
        )
        answer = await self._call(request.voter.node_id, QUORUM_VOTE, asked)
        if answer is not None:
            self.post(events.VoteAnswered(self._clock.monotonic_ms(), request, answer))

    async def _announce(self, to: NodeId, api: Api[Asked, events.LeaderAndEpoch], request: Asked) -> None:
        answer = await self._call(to, api, request)
        if answer is not None:
            self.post(events.LeaderReported(self._clock.monotonic_ms(), answer.epoch, answer.leader_id, to))

    async def _confirm_leader(self, node_id: NodeId) -> None:
        """Query a node that a message named as leader, at its known address or at any other address of the quorum."""
        try:
            known = self._addresses.of(node_id)
            for target in dict.fromkeys((known, *self._addresses.all_others())):
                if target is None:
                    continue
                try:
                    answer = await self.introduce(target)
                except TidelogError as error:
                    _log.debug("node %d, named as leader, cannot be queried at %s: %s", node_id, target, error.message)
                    continue
                if answer.node_id == node_id:
                    self.post(
                        events.LeaderReported(
                            self._clock.monotonic_ms(), answer.leader_epoch, answer.leader_id, node_id
                        )
                    )
                    return
        finally:
            self._confirming.discard(node_id)

    async def introduce(self, target: Endpoint) -> IntroduceAnswer:
        """Query the identity of the replica at `target` and record it. Raises InconsistentClusterId, InvalidRequest for
        an invalid identity, and the errors of the call."""
        request = IntroduceRequest(self.me.node_id)
        try:
            answer = await self._peers.call(target, QUORUM_INTRODUCE, request, timeout_ms=SEND_MS)
        except ConnectionFailed:
            self._addresses.missed(target)
            raise
        own = self._cluster_id()
        if own and answer.cluster_id and answer.cluster_id != own:
            raise InconsistentClusterId(
                f"node {answer.node_id} at {target} belongs to cluster {answer.cluster_id}, node {self.me.node_id} to "
                f"cluster {own}: check controller.quorum.bootstrap.servers"
            )
        key = key_of(answer.key)
        if key.node_id == self.me.node_id:
            raise InvalidRequest(
                f"the replica at {target} has the id of this node, {key.node_id}: make node ids unique"
            )
        self._addresses.introduced(target, key)
        return answer

    async def _call(self, to: NodeId, api: Api[Asked, Answered], request: Asked) -> Answered | None:
        """The answer of another node; None if there is none. Messages that matter are sent again."""
        endpoint = self._addresses.of(to)
        if endpoint is None:
            return None
        try:
            return await self._peers.call(endpoint, api, request, timeout_ms=SEND_MS)
        except TidelogError as error:
            if isinstance(error, ConnectionFailed):
                self._addresses.missed(endpoint)
            _log.debug("%s to node %d at %s: %s", api, to, endpoint, error.message)
            return None


def _control(keys: tuple[ReplicaKey, ...]) -> tuple[ControlVoter, ...]:
    return tuple(ControlVoter(key.node_id, key.directory_id) for key in keys)
