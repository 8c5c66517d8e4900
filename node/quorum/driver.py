"""Joins the quorum's rules to the disk, the wire and the clock.

Kept true:
  1. Events are handled one after the other, each one's effects in their order, and before each event the rules have
     seen the log as it is then. A vote is fsynced before anything that follows it is sent.
  2. Whoever asks this node who leads is told what the rules know at that moment.
  3. A log that cannot be written any more ends the node: an error of its disk leaves unknown what is on it. A full disk
     only ends the leadership.
  4. No message ends the node. An event that the rules could not take leaves them as they were; a message that could not
     be sent, or an epoch that could not be opened, ends the leadership. Either is logged once, with its cause. What
     fails when committed metadata are applied does end it: its next start applies them anew.
  5. A vote that lies in the reserve below the largest epoch is not taken into use: this node could never vote again.

Left to others: the rules (replication/raft/quorum.py), fetching (fetcher.py), the controller (controller_driver.py).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar, assert_never

from node.metadata.metadata_log import MetadataLog
from node.quorum.addresses import QuorumAddresses
from node.quorum.codec import begin_to_proto, end_to_proto, key_of, vote_answer_from_proto, vote_to_proto
from node.quorum.state import QuorumView, ensure_usable, read_state, write_state
from node.runtime import methods
from node.runtime.clock import Clock
from node.runtime.methods import Answer as WireAnswer
from node.runtime.methods import Method, Request
from node.runtime.ticker import Ticker
from node.runtime.transport import Transport
from node.runtime.work import run_in
from replication.controller import features
from replication.controller.image import ClusterImage
from replication.controller.metadata import ClusterRecord, VotersRecord
from replication.raft.events import (
    Activate,
    Answer,
    AppendRefused,
    AskBack,
    Called,
    Commit,
    Effect,
    Event,
    Heard,
    LogChanged,
    OpenEpoch,
    Persist,
    Report,
    ResignAsked,
    SendBeginEpoch,
    SendEndEpoch,
    SendVote,
    StopLeading,
    TakeRecords,
    TakeSnapshot,
    Ticked,
    TruncateLog,
    VoteAnswered,
    VoteRequest,
)
from replication.raft.log_view import LogView
from replication.raft.quorum import Quorum, QuorumTimes
from replication.raft.roles import QuorumState
from replication.raft.voters import ReplicaKey, Voter, VoterSet
from storage.files.executor import Executor
from storage.files.file_system import Files
from tidelog.errors import (
    ConnectionFailed,
    DiskFull,
    InconsistentClusterId,
    InvalidRequest,
    NotLeaderOrFollower,
    TidelogError,
    UnknownServerError,
)
from tidelog.protocol.v1 import quorum_pb2
from tidelog.records import LeaderChange
from tidelog.records import Voter as ControlVoter
from tidelog.types import Endpoint, LeaderEpoch, Millis, NodeId

_log = logging.getLogger("node.quorum")

FEATURE_LEVEL: Final = features.LATEST
"""What the records of a new cluster may use: all that is in the first version."""

TICK_MS: Final = 25
"""How exactly timeouts end: a fraction of the shortest, a round of votes. What lies between is slept through."""

SEND_MS: Final = 1_000
"""A vote request or news of a leadership waits so long for its answer; it is sent again before that."""

FULL_MS: Final = 1_000
"""Pause before a vote is written again for which there was no room."""

FAREWELL_MS: Final = 500
"""A node that stops waits so long for the voters to hear that it leads no more."""

ASKED_BACK_MAX: Final = 8
"""Nodes asked at once whether they lead: those of one election, and some that only a faulty node has named."""

DEFECTS_MAX: Final = 100
"""So many different defects are logged."""

R = TypeVar("R")

TakeFetched = Callable[[TakeRecords | TruncateLog | TakeSnapshot], None]
"""Does with an answer's contents what the rules say."""


class QuorumDriver:
    """One node's part in the quorum, from `run` on."""

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
        transport: Transport,
        on_lead: Callable[[ClusterImage], None],
        on_resign: Callable[[], None],
    ) -> None:
        """on_lead: given the image of the whole log, once this node leads and has committed in its own epoch.
        on_resign: it does not any more."""
        self.me = me
        self.core: Quorum | None = None
        """None until the node's vote has been read."""
        self.changed = asyncio.Event()
        """Set whenever the leader or the epoch is another; whoever waits for it clears it."""
        self._metadata, self._view, self._addresses = metadata, view, addresses
        self._times = times
        self._files, self._executor, self._clock, self._rng = files, executor, clock, rng
        self._transport = transport
        self._on_lead, self._on_resign = on_lead, on_resign
        self._cluster_id: Callable[[], str] = str
        self._first_cluster = ""
        self._first_voters: tuple[Voter, ...] = ()
        self._events: deque[tuple[Event, TakeFetched | None, asyncio.Future[None] | None]] = deque()
        self._log_moved = False
        self._wake = asyncio.Event()
        self._ticker = Ticker(clock, TICK_MS, self._tick)
        self._requests = 0
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._sending: asyncio.TaskGroup | None = None
        self._farewells: set[asyncio.Task[None]] = set()
        self._asked_back: set[NodeId] = set()
        self._defects: set[str] = set()
        view.silence_ms = lambda: 0 if self.core is None else self.core.silence_ms(clock.monotonic_ms())
        metadata.on_moved = self._note_moved
        metadata.on_full = self.refused

    async def run(self, *, cluster_id: Callable[[], str], form: tuple[str, tuple[Voter, ...]] | None = None) -> None:
        """Take part, until cancelled or the disk fails.

        cluster_id: of this node's directories now, "" for none. form: id and voters of a cluster that this node forms;
        it is one of them. Raises KafkaStorageError, CorruptLog.
        """
        self._cluster_id = cluster_id
        if form is not None:
            self._first_cluster, self._first_voters = form
            self._addresses.expect(self._first_voters)
        log = self._metadata.log
        try:
            state = await run_in(self._executor, lambda: read_state(self._files, log.path))
        except OSError as error:
            raise log.directory.fail(f"reading the vote in {log.path}", error) from error
        ensure_usable(state, self._metadata.view(), log.path)
        self.core = Quorum(
            self.me, state, self._log_view(), times=self._times, rng=self._rng, at=self._clock.monotonic_ms()
        )
        self._show()
        if form is not None or self.core.log.voters.members == (self.me,):
            self.post(Called(self._clock.monotonic_ms()))
        try:
            async with asyncio.TaskGroup() as tasks:
                self._sending = tasks
                tasks.create_task(self._handle_events(), name="quorum events")
                tasks.create_task(self._ticker.run(), name="quorum ticks")
                tasks.create_task(self._watch_log(), name="quorum log")
        finally:
            self._sending = None
            self._on_resign()

    # --- from outside ---------------------------------------------------------------------------------------------

    def post(self, event: Event) -> None:
        """Hand an event to the rules."""
        self._events.append((event, None, None))
        self._wake.set()

    async def take(self, event: Event, take: TakeFetched) -> None:
        """Hand in the answer to a fetch; returns once what the rules made of it is done. Raises what `take` raises."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._events.append((event, take, done))
        self._wake.set()
        await done

    async def ask(self, request: Callable[[int], Event], expected: type[R]) -> R:
        """Hand a request of another node to the rules and wait for the answer. Raises the refusal."""
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
        """The log refused what was to be appended, or to make it durable: whoever decided it has decided what is not
        there, or not yet."""
        if not isinstance(error, DiskFull | UnknownServerError):
            self._metadata.failure = error
            self._metadata.wake()
        elif self._view.leads:
            _log.error("this node stops leading the metadata quorum: %s", error.message)
        self.post(AppendRefused(self._clock.monotonic_ms()))

    async def resign(self) -> None:
        """Lead no more, and let the voters know who should. Returns when they do, or soon after."""
        if self.core is None:
            return
        self.post(ResignAsked(self._clock.monotonic_ms()))
        try:
            async with asyncio.timeout(FAREWELL_MS / 1_000):
                await self._metadata.wait_until(lambda: not self._view.leads)
                while self._farewells:
                    await asyncio.wait(tuple(self._farewells))
        except TimeoutError:
            _log.info("not every voter has heard that this node leads no more")

    # --- tasks ----------------------------------------------------------------------------------------------------

    def _tick(self, now: Millis, _: int) -> Millis | None:
        """Let the rules see time pass where that changes anything; returns when it does next."""
        assert self.core is not None
        due = self.core.due
        if due is not None and due <= now and not any(isinstance(event, Ticked) for event, _, _ in self._events):
            self.post(Ticked(now))
        return due

    async def _watch_log(self) -> None:
        """Raises what made the log unusable."""
        await self._metadata.wait_until(lambda: False)

    async def _handle_events(self) -> None:
        while True:
            while self._log_moved or self._events:
                if self._log_moved:
                    self._log_moved = False
                    await self._handle(LogChanged(self._clock.monotonic_ms(), self._log_view()), None)
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
        """Log it once. Returns what to tell a caller."""
        text = f"{doing} failed by a defect ({type(defect).__name__}: {defect})"
        if text not in self._defects and len(self._defects) < DEFECTS_MAX:
            self._defects.add(text)
            _log.error("metadata quorum: %s", text, exc_info=defect)
        return UnknownServerError(f"node {self.me.node_id}: {text}")

    async def _handle(self, event: Event, take: TakeFetched | None) -> None:
        if self._view.leads and self._metadata.log.directory.offline is not None:
            # It could append nothing, so another should lead.
            await self._give(AppendRefused(self._clock.monotonic_ms()), None)
        await self._give(event, take)

    async def _give(self, event: Event, take: TakeFetched | None) -> None:
        assert self.core is not None
        led = self._view.leads
        try:
            effects = self.core.handle(event)
        except Exception as defect:  # noqa: BLE001 - whatever it is: the rules are as they were
            self._refuse(event, self._note_defect(f"taking {type(event).__name__}", defect))
            return
        due = self.core.due
        if due is not None:
            self._ticker.by(due)
        if led or not self.core.leads or not any(isinstance(effect, Persist) for effect in effects):
            self._show()  # else it leads by its own vote alone: nobody is to hear of that before the vote is durable
        for effect in effects:
            match effect:
                case Persist(state):
                    await self._persist(state)
                    self._show()
                case TakeRecords() | TruncateLog() | TakeSnapshot():
                    assert take is not None, "comes with an answer only"
                    take(effect)
                case Commit(offset):
                    self._metadata.commit(offset)
                case _:
                    self._carry_out_or_step_down(effect)

    def _carry_out_or_step_down(self, effect: Effect) -> None:
        try:
            self._carry_out(effect)
        except TidelogError:
            raise
        except Exception as defect:  # noqa: BLE001 - it must not end the node
            self._note_defect(f"carrying out {type(effect).__name__}", defect)
            if self._view.leads:
                self.post(AppendRefused(self._clock.monotonic_ms()))

    def _refuse(self, event: Event, error: UnknownServerError) -> None:
        """Answer the request that could not be taken; what no request brought ends the leadership."""
        waiting = self._answers.get(getattr(event, "request_id", 0))
        if waiting is not None and not waiting.done():
            waiting.set_exception(error)
        elif self._view.leads and not isinstance(event, AppendRefused):
            self.post(AppendRefused(self._clock.monotonic_ms()))

    # --- carrying out ---------------------------------------------------------------------------------------------

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Answer(request_id, answer):
                waiting = self._answers.get(request_id)
                if waiting is not None and not waiting.done():
                    waiting.set_result(answer)
            case SendVote() | SendBeginEpoch() | SendEndEpoch() | AskBack():
                self._send(effect)
            case OpenEpoch(epoch, granting):
                self._open_epoch(epoch, granting)
            case Activate(epoch):
                _log.info("leads the metadata quorum in epoch %d, log end %d", epoch, self._metadata.end)
                self._on_lead(self._metadata.replayed())
            case StopLeading():
                _log.info("does not lead the metadata quorum any more")
                self._on_resign()
            case Report(text):
                _log.warning("%s", text)
            case _:
                raise AssertionError(f"{effect} is carried out elsewhere")

    async def _persist(self, state: QuorumState) -> None:
        """Write the vote, durably; a full disk is waited for: without its vote on disk this node says nothing."""
        log = self._metadata.log
        said = False
        while True:
            try:
                await run_in(self._executor, lambda: write_state(self._files, log.path, state))
                return
            except OSError as error:
                failure = log.directory.fail(f"voting in {log.path}", error)
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
                assert self._first_cluster, "who forms no cluster is elected by voters that a log names"
                cluster = ClusterRecord(self._first_cluster, FEATURE_LEVEL)
                self._metadata.append([cluster, VotersRecord(self._first_voters)], epoch)
        except DiskFull as error:
            self.refused(error)

    def _log_view(self) -> LogView:
        """The log; before its first voters record, the voters of the cluster that is being formed."""
        view = self._metadata.view()
        if view.voters.members or not self._first_voters:
            return view
        return LogView(
            view.log_start,
            view.log_end,
            view.durable_offset,
            view.high_watermark,
            view.epochs,
            VoterSet.of(self._first_voters),
            snapshot=view.snapshot,
        )

    def _note_moved(self) -> None:
        self._log_moved = True
        self._wake.set()

    def _show(self) -> None:
        """Let everybody on this node know who leads."""
        core = self.core
        assert core is not None
        if self._view.show(core.leader_id, core.epoch, self._addresses.of(core.leader_id)):
            self.changed.set()
            self._metadata.wake()

    # --- sending --------------------------------------------------------------------------------------------------

    def _send(self, effect: SendVote | SendBeginEpoch | SendEndEpoch | AskBack) -> None:
        match effect:
            case SendVote(request):
                self._start(lambda: self._send_vote(request))
            case SendBeginEpoch(to, begin):
                message = begin_to_proto(begin, to, self._cluster_id())
                self._start(lambda: self._send_news(to.node_id, methods.QUORUM_BEGIN_QUORUM_EPOCH, message))
            case SendEndEpoch(to, end):
                words = end_to_proto(end, to, self._cluster_id())
                farewell = self._start(lambda: self._send_news(to.node_id, methods.QUORUM_END_QUORUM_EPOCH, words))
                self._farewells.add(farewell)
                farewell.add_done_callback(self._farewells.discard)
            case AskBack(node_id):
                if node_id not in self._asked_back and len(self._asked_back) < ASKED_BACK_MAX:
                    self._asked_back.add(node_id)
                    self._start(lambda: self._ask_back(node_id))
            case _:
                assert_never(effect)

    def _start(self, send: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        assert self._sending is not None
        return self._sending.create_task(self._guarded(send))

    async def _guarded(self, send: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await send()
        except Exception as defect:  # noqa: BLE001 - what matters is sent again
            self._note_defect("sending a message", defect)

    async def _send_vote(self, request: VoteRequest) -> None:
        message = vote_to_proto(request, self._cluster_id())
        answer = await self._call(request.voter.node_id, methods.QUORUM_VOTE, message)
        if answer is not None:
            self.post(VoteAnswered(self._clock.monotonic_ms(), request, vote_answer_from_proto(answer)))

    async def _send_news(
        self, to: NodeId, method: Method[Request, quorum_pb2.LeaderAndEpoch], message: Request
    ) -> None:
        answer = await self._call(to, method, message)
        if answer is not None:
            now = self._clock.monotonic_ms()
            self.post(Heard(now, LeaderEpoch(answer.epoch), NodeId(answer.leader_id), to))

    async def _ask_back(self, node_id: NodeId) -> None:
        """Ask a node that a message named, where it is known to be or wherever it is met, what it says itself."""
        try:
            known = self._addresses.of(node_id)
            for target in dict.fromkeys((known, *self._addresses.all_others())):
                if target is None:
                    continue
                try:
                    answer = await self.introduce(target)
                except TidelogError as error:
                    _log.debug("node %d, named as leader, is not asked at %s: %s", node_id, target, error.message)
                    continue
                if answer.node_id == node_id:
                    epoch, leader = LeaderEpoch(answer.leader_epoch), NodeId(answer.leader_id)
                    self.post(Heard(self._clock.monotonic_ms(), epoch, leader, node_id))
                    return
        finally:
            self._asked_back.discard(node_id)

    async def introduce(self, target: Endpoint) -> quorum_pb2.IntroduceResponse:
        """Ask who is there; it is noted. Raises InconsistentClusterId, InvalidRequest where it does not say who it is,
        and what the call raises."""
        request = quorum_pb2.IntroduceRequest(node_id=self.me.node_id)
        try:
            answer = await self._transport.call(target, methods.QUORUM_INTRODUCE, request, timeout_ms=SEND_MS)
        except ConnectionFailed:
            self._addresses.missed(target)
            raise
        own = self._cluster_id()
        if own and answer.cluster_id and answer.cluster_id != own:
            raise InconsistentClusterId(
                f"node {answer.node_id} at {target} belongs to cluster {answer.cluster_id}, node {self.me.node_id} to "
                f"{own}: check the addresses in [quorum] nodes"
            )
        key = key_of(answer.node_id, answer.directory_id)
        if key.node_id == self.me.node_id:
            raise InvalidRequest(f"the replica at {target} has the number of this node, {key.node_id}")
        self._addresses.introduced(target, key)
        return answer

    async def _call(self, to: NodeId, method: Method[Request, WireAnswer], message: Request) -> WireAnswer | None:
        """The answer of another node, None where there is none: what matters is sent again."""
        endpoint = self._addresses.of(to)
        if endpoint is None:
            return None
        try:
            return await self._transport.call(endpoint, method, message, timeout_ms=SEND_MS)
        except TidelogError as error:
            if isinstance(error, ConnectionFailed):
                self._addresses.missed(endpoint)
            _log.debug("%s to node %d at %s: %s", method, to, endpoint, error.message)
            return None


def _control(keys: tuple[ReplicaKey, ...]) -> tuple[ControlVoter, ...]:
    return tuple(ControlVoter(key.node_id, key.directory_id) for key in keys)
