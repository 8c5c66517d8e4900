"""Driver of the controller: connects the rules (replication/controller/controller.py) to the metadata log. Decisions
are appended as batches, and requests are answered once they are committed.

Invariants:
  1. Events are processed one after the other, each one's effects in order.
  2. A batch has the offset that the controller decided. If the log rejects a batch, this node stops being the active
     controller, because its controller has decided something that is not in the log.
  3. No request ends the node. A request that the controller fails to process has no effect and is answered with the
     error. After any other defect this node stops being the active controller.

Not here: the rules (replication/controller/controller.py), commits (node/quorum/driver.py), requests of other nodes
(node/controller/controller_handlers.py).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Callable
from typing import Final, TypeVar

from node.api.offsets import ReplicaLogInfoRequest
from node.api.peers import Peers
from node.api.quorum_requests import IntroduceRequest
from node.api.table import DATA_GET_REPLICA_LOG_INFO, QUORUM_INTRODUCE
from node.metadata.metadata_log import MetadataLog
from node.quorum.state import QuorumView
from node.runtime.histogram import Histogram
from replication.common_events import ClockTicked, Report
from replication.controller import events
from replication.controller.controller import Controller
from replication.controller.image import ClusterImage
from replication.controller.node_state import NodeCause
from replication.controller.registration import has_ended
from replication.raft.voters import ReplicaKey
from tidelog.clock import Clock
from tidelog.errors import DuplicateNodeRegistration, NotController, TidelogError, UnknownServerError
from tidelog.types import Incarnation, LeaderEpoch, Millis, NodeEpoch, NodeId

_log = logging.getLogger("node.controller")

TICK_MS: Final = 100
"""Precision of session timeouts. Far below half a session: the controller takes a longer gap for a pause of its own."""

LISTEN_MS: Final = 200
"""The same while the controller is not active: heartbeats tell it the time as well. Also below half a session."""

QUERY_MS: Final = 1_000
"""Timeout of a replica for reporting its log end. The election continues without it."""

DAMAGE_READ_MS: Final = 8_000
"""Additional time for reading a damaged log when an operator requested the election."""

INTRODUCE_MS: Final = 500
"""Timeout of a registered process for its identity, before another one replaces it."""

REQUEST_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Bounds of the histogram of the times of requests: those of commits of the metadata log."""

R = TypeVar("R")


class ControllerDriver:
    """The active controller while this node leads the metadata quorum. Otherwise it refuses requests."""

    def __init__(
        self,
        controller: Controller,
        metadata: MetadataLog,
        view: QuorumView,
        node_id: NodeId,
        incarnation: Incarnation,
        *,
        listener: str,
        clock: Clock,
        peers: Peers,
        on_refused: Callable[[TidelogError], None],
        on_probe: Callable[[NodeId], None],
    ) -> None:
        """listener: the name of the listener between nodes. on_refused: called with the reason when the log rejects a
        batch. on_probe: called with a node whose process may have ended."""
        self._controller, self._metadata, self._view = controller, metadata, view
        self._me, self._incarnation, self._listener = node_id, incarnation, listener
        self._clock, self._peers = clock, peers
        self.unclean_elections = 0
        """Unclean elections by this process's controller; each may have lost records."""
        self.fencings = dict.fromkeys((NodeCause.SESSION_ENDED, NodeCause.REFUSED), 0)
        """Nodes that this process's controller fenced because of a failure, by cause."""
        self.elections = dict.fromkeys(events.ElectionCause, 0)
        """Leaders elected by this process's controller, by cause."""
        self.request_times = Histogram(REQUEST_S)
        """From the arrival of each request to its answer."""
        self._questions: asyncio.Queue[events.QueryLogEnds] = asyncio.Queue()
        self._on_refused, self._on_probe = on_refused, on_probe
        self._epoch = LeaderEpoch(-1)
        self._requests = itertools.count(1)
        self._answers: dict[int, asyncio.Future[events.Result]] = {}
        self._arrived: dict[int, Millis] = {}
        """When each request without an answer arrived, in that order."""
        self._events: deque[events.Event] = deque()
        self._handling = False
        metadata.subscribe(self._on_committed)

    async def run(self) -> None:
        """Send ticks to the controller and query log ends for it, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._tick())
            while True:
                tasks.create_task(self._query_log_ends(await self._questions.get()))

    async def _tick(self) -> None:
        while True:
            await self._clock.sleep_ms(TICK_MS if self._controller.active else LISTEN_MS)
            self._handle(ClockTicked(self.now()))

    async def _query_log_ends(self, question: events.QueryLogEnds) -> None:
        """Query all nodes of the question at once. The answers that come in time count."""
        ends: list[events.ReplicaEnd] = []
        async with asyncio.TaskGroup() as asking:
            for node_id in question.nodes:
                asking.create_task(self._query_log_end(node_id, question, ends))
        reported = tuple(sorted(ends, key=lambda end: end.node_id))
        self._handle(events.LogEndsReported(question.number, reported))

    async def _query_log_end(
        self, node_id: NodeId, question: events.QueryLogEnds, ends: list[events.ReplicaEnd]
    ) -> None:
        key, look_ms = question.key, DAMAGE_READ_MS if question.commanded else QUERY_MS // 2
        node = self._metadata.image.nodes.get(node_id)
        endpoint = None if node is None else node.listeners.get(self._listener)
        if endpoint is None:
            return
        asked = ReplicaLogInfoRequest(key.topic_id.bytes, key.partition, look_ms)
        try:
            answer = await self._peers.call(endpoint, DATA_GET_REPLICA_LOG_INFO, asked, timeout_ms=QUERY_MS + look_ms)
        except TidelogError as error:
            _log.info("node %d did not report its log end of %s: %s", node_id, key, error.message)
            return
        ends.append(
            events.ReplicaEnd(node_id, answer.last_epoch, answer.log_end_offset, answer.directory_id, answer.lost)
        )

    def now(self) -> Millis:
        """Monotonic time, for events."""
        return self._clock.monotonic_ms()

    @property
    def active(self) -> bool:
        """True if this node's controller is the active one."""
        return self._controller.active

    @property
    def image(self) -> ClusterImage:
        """The cluster as this node's controller has decided, committed or not. Only the active one is up to date."""
        return self._controller.image

    @property
    def waiting(self) -> int:
        """Requests without an answer."""
        return len(self._arrived)

    @property
    def oldest_ms(self) -> int:
        """How long the oldest of them has waited; 0 if there is none."""
        first = next(iter(self._arrived.values()), None)
        return 0 if first is None else self.now() - first

    # --- leading ----------------------------------------------------------------------------------------------------

    def activate(self, image: ClusterImage) -> None:
        """Become the active controller. image: of the whole log; the next batch is appended at its end."""
        self._epoch = self._view.leader_epoch
        self._handle(events.Activated(self.now(), image, self._me, self._incarnation))
        self._handle(events.Committed(self._metadata.high_watermark))

    def resign(self) -> None:
        """Stop being the active controller: this node no longer leads the quorum."""
        if self._controller.active:
            self._handle(events.Resigned())

    def _on_committed(self, image: ClusterImage) -> None:
        if self._controller.active:
            self._handle(events.Committed(image.offset))

    def review_voters(self, caught_up: tuple[ReplicaKey, ...]) -> None:
        """Review the voter set. caught_up: replicas that are up to date with the log."""
        if self._controller.active:
            self._handle(events.VotersReviewed(self.now(), caught_up))

    def heartbeat_received(self, node_id: NodeId, node_epoch: NodeEpoch) -> None:
        """Record that the process of this registration is alive, in case this controller becomes the active one. A
        heartbeat with an older node epoch does not count for the present registration."""
        node = self._metadata.image.nodes.get(node_id)
        if not self._controller.active and node is not None and node.node_epoch == node_epoch:
            self._handle(events.HeartbeatReceived(self.now(), node_id))

    # --- requests ---------------------------------------------------------------------------------------------------

    async def ask(self, request: events.Request, expected: type[R]) -> R:
        """Pass a request to the controller and wait for the answer. Raises the error of a rejection, NotController if
        this node is not the active controller."""
        if not self._controller.active:
            raise NotController(
                f"node {self._me} is not the active controller"
                + (f", node {self._view.leader_id} is" if self._view.endpoint is not None else "; none is known now"),
                leader=self._view.address(),
            )
        number = next(self._requests)
        answer: asyncio.Future[events.Result] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        arrived = self._arrived[number] = self.now()
        try:
            self._handle(events.Submitted(number, arrived, request))
            result = await answer
        finally:
            del self._answers[number], self._arrived[number]
            self.request_times.observe((self.now() - arrived) / 1_000)
        assert isinstance(result, expected), f"the controller answered {result}"
        return result

    async def ensure_ended(self, request: events.RegisterNode) -> None:
        """Raise DuplicateNodeRegistration if a process claims that an earlier one of its node has ended, and the
        earlier one answers at its address. Everything that the claim names can be read in the metadata log, and a
        process that is replaced ends. An address that does not answer proves nothing: then the claim alone decides."""
        node = self._metadata.image.nodes.get(request.node_id)
        if not self._controller.active or node is None or node.fenced or node.incarnation == request.incarnation:
            return
        endpoint = node.listeners.get(self._listener)
        if endpoint is None or not has_ended(node, request):
            return
        try:
            asked = IntroduceRequest(self._me)
            answer = await self._peers.call(endpoint, QUORUM_INTRODUCE, asked, timeout_ms=INTRODUCE_MS)
        except TidelogError:
            return
        if answer.incarnation == node.incarnation.bytes:
            error = DuplicateNodeRegistration(
                f"node {node.node_id} is registered as incarnation {node.incarnation}, and that process answers at "
                f"{endpoint}: the claim of incarnation {request.incarnation} that it has ended is wrong or forged"
            )
            _log.warning("%s", error.message)
            raise error

    # --- carrying out -----------------------------------------------------------------------------------------------

    def _handle(self, event: events.Event) -> None:
        """Process the event and those that result from it, in order."""
        self._events.append(event)
        if self._handling:
            return
        self._handling = True
        try:
            while self._events:
                event = self._events.popleft()
                try:
                    effects = self._controller.handle(event)
                except Exception as defect:  # noqa: BLE001 - the rules are unchanged after any exception
                    self._refuse(event, _defect_error(f"processing {_name_of(event)}", defect))
                else:
                    self._carry_out(effects)
        finally:
            self._handling = False

    def _refuse(self, event: events.Event, error: TidelogError) -> None:
        if isinstance(event, events.Submitted):
            self._reply(event.request_id, error)
        elif not isinstance(event, events.Resigned):
            self._step_down(error)

    def _step_down(self, error: TidelogError) -> None:
        self._events.clear()
        self._events.append(events.Resigned())
        self._on_refused(error)

    def _carry_out(self, effects: list[events.Effect]) -> None:
        refused: TidelogError | None = None
        for effect in effects:
            match effect:
                case events.Append() if refused is None:
                    refused = self._append(effect)
                case events.Reply(number, result):
                    self._reply(number, result)
                case Report(text):
                    _log.warning("%s", text)
                case events.UncleanlyElected(_, _, text):
                    self.unclean_elections += 1
                    _log.error("%s", text)
                case events.QueryLogEnds():
                    self._questions.put_nowait(effect)
                case events.Fenced(_, cause, text):
                    self.fencings[cause] += 1
                    _log.warning("%s", text)
                case events.ProbeNode(node_id):
                    self._on_probe(node_id)
        if refused is not None:
            self._step_down(refused)

    def _append(self, effect: events.Append) -> TidelogError | None:
        try:
            assert effect.base_offset == self._metadata.end, "only the leader appends, and this node leads"
            self._metadata.append(effect.records, self._epoch)
        except TidelogError as error:
            return error
        except Exception as defect:  # noqa: BLE001 - the decision is not in the log: another node is to lead
            return _defect_error("appending a decision", defect)
        for cause in effect.elected:
            self.elections[cause] += 1
        return None

    def _reply(self, number: int, result: events.Result | TidelogError) -> None:
        answer = self._answers.get(number)
        if answer is None or answer.done():  # the caller no longer waits
            return
        if isinstance(result, TidelogError):
            answer.set_exception(result)
        else:
            answer.set_result(result)


def _name_of(event: events.Event) -> str:
    return type(event.request if isinstance(event, events.Submitted) else event).__name__


def _defect_error(doing: str, defect: Exception) -> UnknownServerError:
    """Log a defect with its traceback. Returns the error for a caller."""
    text = f"{doing} failed by a defect ({type(defect).__name__}: {defect})"
    _log.error("controller: %s", text, exc_info=defect)
    return UnknownServerError(text)
