"""A connection of a Kafka client: frames in, answers out.

A frame is read into a buffer of exactly its size, from which the log writes the records. Answers leave in pieces, of
which the transport copies none that the system takes at once.

Invariants:
  1. Answers leave in the order of the requests. One request at a time is handled, as in Kafka; only produce requests,
     whose clients rely on several, are handled up to `PIPELINED_MAX` at once, and they append in order.
  2. No more than one whole frame waits behind the requests that are handled: then nothing is read.
  3. Nothing is read and no request is begun while the client is throttled (KIP-219).
  4. Nothing is allocated for a frame that is too large, or for which the listener has no memory.
  5. Bytes that are not a request, and requests that are not offered, close the connection: they have no answer.
  6. A client that does not read has one answer in memory. All answers that clients do not read are bounded together.
  7. Where the listener has SASL, nothing but ApiVersions and what logs the client in is served before it has logged in.
     The connection ends with the session of its client, once the requests that are handled are answered.

Not here: the requests (exchange.py), what they do (node/boundary/boundary.py), the socket (kafka_server.py), the login
(kafka_sasl.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from functools import partial
from math import inf
from typing import Any, Final, cast

from node.api.api import Api, Audience
from node.api.caller import ANONYMOUS, Caller
from node.api.sasl_requests import AuthenticateAnswer
from node.boundary.boundary import Boundary, Request
from node.listeners.kafka.api_versions import KEY as API_VERSIONS_KEY
from node.listeners.kafka.api_versions import ApiVersions
from node.listeners.kafka.connection_log import ConnectionLog
from node.listeners.kafka.exchange import (
    HEAD_BYTES,
    HEADER_BYTES_MIN,
    NO_ANSWER,
    Exchange,
    Head,
    KafkaAnswer,
    KafkaApi,
    client_of,
    head_of,
)
from node.listeners.kafka.frame_budget import FrameBudget
from node.listeners.kafka.kafka_sasl import (
    HANDSHAKE_KEY,
    HANDSHAKE_VERSIONS,
    SASL_AUTHENTICATE,
    BareToken,
    SaslLogin,
)
from node.listeners.kafka.unread_answers import UnreadAnswers
from node.runtime.limits import SLOW_READER_MS, UNREAD_ANSWER_MS
from node.runtime.request_meter import RequestMeter
from node.security.sasl_authenticator import SaslAuthenticator
from tidelog.errors import TidelogError
from tidelog.protocol.kafka.message_codec import MalformedMessage
from tidelog.record_exchange import FetchAnswer
from tidelog.values import dataclass

_log = logging.getLogger("node.requests")

PIPELINED_MAX: Final = 5
"""Produce requests of a connection that are handled at once: as many as an idempotent producer may have open."""

CLIENT_ID_MAX: Final = 255
"""Limit of characters of a client id; the rest is dropped."""

HEADER_KEPT_MAX: Final = 512
"""The longest header that a connection remembers: tagged fields may be as long as a request."""

FRAME_MS: Final = 1_000
FRAME_BYTES_PER_MS: Final = 64
"""While other frames wait for memory, a frame that has memory must arrive at this rate after its first second.
Otherwise clients that announce frames and never send them would keep all of the memory."""

GRACE_MS: Final = 10_000
"""How long the requests of a connection that has reached its age may take."""

LOGIN_MS: Final = 30_000
"""How long a client may take to log in."""

LOGIN_BYTES_MAX: Final = 64 << 10
"""The largest request of a client that has not logged in: four times the largest token."""


@dataclass(slots=True)
class ListenerState:
    """What the connections of a listener share."""

    apis: Mapping[int, KafkaApi]
    api_versions: ApiVersions
    boundary: Boundary
    frame_bytes_max: int
    budget: FrameBudget
    unread: UnreadAnswers
    log: ConnectionLog
    connections_max: int
    idle_ms_max: int
    client_of: Callable[[asyncio.Transport], tuple[Caller, int | None]]
    """Who is at the other end of a new connection, and how long it may last (ms); None: without a limit."""
    accepted: dict[KafkaConnection, asyncio.BaseTransport] = field(default_factory=dict)
    """All connections, with TLS from before the handshake on, with their sockets."""
    sasl: SaslAuthenticator | None = None
    """Who the clients are; None if they need not log in."""
    feature_level: Callable[[], int] = lambda: 0
    """That of the metadata; 0 while it is unknown."""
    connections: set[KafkaConnection] = field(default_factory=set)
    """Those that may send requests."""
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    """Those that handle requests. A listener that stops waits for them before it ends the connections."""

    def accept(self, connection: KafkaConnection, transport: asyncio.BaseTransport, address: str) -> bool:
        """Count a new connection, once. Returns False if there are too many. address: of the client."""
        if connection not in self.accepted:
            if len(self.accepted) >= self.connections_max:
                self.log.closed(
                    "too many connections",
                    "",
                    f"closing the connection of {address} and all further ones: {self.connections_max} are open, as "
                    "many as max.connections and half of the files of the process allow. `ss -tn` names the addresses",
                    level=logging.WARNING,
                )
                return False
            self.accepted[connection] = transport
        return True


class _Opened:
    """A request that has been begun and whose answer has not left."""

    __slots__ = (
        "answer",
        "answered_ns",
        "ends_if_refused",
        "is_last",
        "is_pipelined",
        "meter",
        "task",
        "throttle_time_ms",
        "value",
    )

    def __init__(self, meter: RequestMeter | None, *, is_pipelined: bool) -> None:
        self.meter, self.is_pipelined = meter, is_pipelined
        self.answer: KafkaAnswer | None = None
        """None until there is one."""
        self.answered_ns = 0
        """Since when there is one, by the clock of the meter."""
        self.value: object = None
        """Holds the memory of the answer."""
        self.throttle_time_ms = 0
        self.is_last = self.ends_if_refused = False
        """True if the connection ends after the answer, and after the answer to a refusal."""
        self.task: asyncio.Task[None] | None = None

    def answer_with(self, answer: KafkaAnswer) -> None:
        """The answer is known. It waits for its turn, and for the client to read."""
        self.answer = answer
        if self.meter is not None:
            self.answered_ns = self.meter.now_ns()

    def sent(self) -> None:
        """The answer has left: the system has all of it."""
        if self.meter is not None:
            self.meter.send_ns += self.meter.now_ns() - self.answered_ns


class _WholeFrame:
    """A whole frame."""

    __slots__ = ("frame", "since_ns")

    def __init__(self, frame: bytearray, since_ns: int) -> None:
        self.frame = frame
        self.since_ns = since_ns
        """When it arrived, by the clock of the meters; earlier by what it had waited for memory."""


_BARE: Final = Head(SASL_AUTHENTICATE.key, 0, 0)
"""Of a frame that is a message of a SASL mechanism, without a header."""

_CLOSES: Final = KafkaAnswer(())
"""In place of an answer: the connection ends when it is its turn."""


class KafkaConnection(asyncio.BufferedProtocol):
    """One connection, from its beginning to its end."""

    def __init__(self, shared: ListenerState) -> None:
        self._shared = shared
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._caller: Caller
        self._login = SaslLogin("", None)  # until the handshake of TLS is done
        self._unproved: TidelogError | None = None
        """Why not even a login is possible: the certificate of the client."""
        self._size_bytes: Final = bytearray(4)
        self._buffer = self._size_bytes
        """What is being filled: the size of the next frame, or the frame."""
        self._filled = 0
        self._client_headers = [b"", b""]
        """What followed the head of the last request with the client id that is noted, of a plain and of a flexible
        version."""
        self._frames: deque[_WholeFrame] = deque()
        """Whole, not begun."""
        self._opened: deque[_Opened] = deque()
        self._unsent: list[_Opened] = []
        """Those whose answers were written, and of which the transport still has bytes."""
        self._blocked_s: float | None = None
        """Since when the client does not read (time of the loop)."""
        self._frame_since_s: float | None = None
        """Since when the frame is read that occupies memory and is not whole."""
        self._queued_ns = 0
        """How long the frame that is begun has waited."""
        self._now_ns = shared.boundary.meters.now_ns
        self._active_s = self._loop.time()
        self._ends_s = self._login_until_s = inf
        self._unmuting: asyncio.TimerHandle | None = None
        self._needs_room, self._needs_room_ns = 0, 0
        """The size of a frame that waits for memory, and since when."""
        self._room_ns = 0
        """How long the frame that is read has waited for memory."""
        self._reads = True
        self._last_request = ""
        """The kind of the request that was begun last."""
        self._is_closing = self._is_lost = self._is_over = False

    def __str__(self) -> str:
        caller = self._caller
        last = f"last request {self._last_request}" if self._last_request else "no request"
        return f"{caller.connection} ({caller.principal}, client id {caller.client_id!r}, {last})"

    # --- the transport ------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The client has connected; with TLS, the handshake is done."""
        self._transport = cast("asyncio.Transport", transport)
        self._caller, lifetime_ms = self._shared.client_of(self._transport)
        self._login, self._unproved = SaslLogin(self._caller.listener, self._shared.sasl), self._caller.unauthenticated
        if self._unproved is None and self._login.is_due:
            self._caller = replace(self._caller, unauthenticated=self._login.refusal)
            self._login_until_s = self._loop.time() + LOGIN_MS / 1_000
        if lifetime_ms is not None:
            self._ends_s = self._loop.time() + lifetime_ms / 1_000
        if not self._shared.accept(self, transport, self._caller.connection):
            self._abort()
            return
        # `pause_writing` means: the system did not take all at once. With TLS and high=0, nothing would resume.
        self._transport.set_write_buffer_limits(high=1, low=0)
        self._shared.connections.add(self)

    def connection_lost(self, _exc: Exception | None) -> None:
        """The connection has ended: nothing can be answered any more."""
        self._is_closing = self._is_lost = True
        self._shared.accepted.pop(self, None)
        self._shared.connections.discard(self)
        self._shared.budget.forget(self._room_given)
        self._shared.unread.remove(self)
        if self._buffer is not self._size_bytes:
            self._shared.budget.give_back(len(self._buffer))
        while self._frames:
            self._shared.budget.give_back(len(self._frames.popleft().frame))
        for opened in self._opened:
            if opened.task is not None:
                opened.task.cancel()
        self._opened.clear()
        self._unsent.clear()
        self._login.end()
        if self._unmuting is not None:
            self._unmuting.cancel()

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Where to put what arrives: never more than the rest of the size, or of the frame."""
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """So many bytes have arrived."""
        self._filled += nbytes
        if self._filled < len(self._buffer) or self._is_closing:
            return
        self._active_s = self._loop.time()
        if self._buffer is self._size_bytes:
            self._size_read(int.from_bytes(self._size_bytes, "big", signed=True))
        else:
            self._frame_read()

    def pause_writing(self) -> None:
        """The client reads more slowly than it asks."""
        self._blocked_s = self._loop.time()

    def resume_writing(self) -> None:
        """All that was written has left."""
        self._blocked_s = None
        self._shared.unread.remove(self)
        self._all_sent()
        self._loop.call_soon(self._send_answers)  # a transport that is closed in here tells its end twice (asyncio)

    # --- frames -------------------------------------------------------------------------------------------------------

    def _size_read(self, size: int) -> None:
        smallest = 0 if self._login.sends_tokens else HEADER_BYTES_MIN
        largest = self._shared.frame_bytes_max
        if self._login.is_due:
            largest = min(largest, LOGIN_BYTES_MAX)
        if not smallest <= size <= largest:
            self._refuse(_foreign(size) or f"a request of {size} bytes; {smallest} to {largest} are allowed")
        elif self._shared.budget.take(size, self._room_given):
            self._read_frame(size)
        else:
            self._needs_room, self._needs_room_ns = size, self._now_ns()
            self._adjust_reading()

    def _room_given(self) -> None:
        size, self._needs_room = self._needs_room, 0
        self._room_ns = self._now_ns() - self._needs_room_ns
        self._read_frame(size)
        self._adjust_reading()

    def _read_frame(self, size: int) -> None:
        self._buffer, self._filled, self._frame_since_s = bytearray(size), 0, self._loop.time()
        if not size:
            self._frame_read()

    def _frame_read(self) -> None:
        frame, self._buffer, self._filled, self._frame_since_s = self._buffer, self._size_bytes, 0, None
        self._frames.append(_WholeFrame(frame, self._now_ns() - self._room_ns))
        self._room_ns = 0
        self._begin_frames()

    def _begin_frames(self) -> None:
        """Begin the requests whose turn it is."""
        while self._frames and not self._is_closing and self._unmuting is None and self._blocked_s is None:
            is_bare = self._login.sends_tokens
            frame = self._frames[0].frame
            if not is_bare and len(frame) < HEADER_BYTES_MIN:  # it was read as a token, and came too late
                self._refuse(f"a request of {len(frame)} bytes behind its login")
                return
            head = _BARE if is_bare else head_of(frame)
            kafka = self._shared.apis.get(head.key)
            if self._opened and not self._joins(kafka):
                break
            self._queued_ns = self._now_ns() - self._frames.popleft().since_ns
            is_needed = False
            try:
                if is_bare:
                    is_needed = self._begin_task(
                        SASL_AUTHENTICATE, SASL_AUTHENTICATE.api, memoryview(frame), BareToken(self._login)
                    )
                else:
                    is_needed = self._begin(memoryview(frame), head, kafka)
            except MalformedMessage as error:
                self._refuse(str(error))
            if not is_needed:
                self._shared.budget.give_back(len(frame))
        self._adjust_reading()

    def _joins(self, kafka: KafkaApi | None) -> bool:
        """Whether a request is begun although others are not answered: these are produce requests, too."""
        return (
            kafka is not None
            and kafka.is_pipelined
            and self._opened[-1].is_pipelined
            and len(self._opened) < PIPELINED_MAX
        )

    def _begin(self, frame: memoryview, head: Head, kafka: KafkaApi | None) -> bool:
        """Returns True if the frame is needed until the request is answered. Raises MalformedMessage."""
        if head.key == API_VERSIONS_KEY:
            self._answer(self._shared.api_versions.answer(frame, head, self._shared.feature_level()))
            return False
        if head.key == HANDSHAKE_KEY and head.version in HANDSHAKE_VERSIONS:
            answer, goes_on = self._login.handshake(frame, head)
            self._answer(answer, is_last=not goes_on)
            return False
        if kafka is None or head.version not in kafka.versions:
            self._refuse(f"a request with key {head.key} in version {head.version}, which is not offered")
            return False
        body_at = self._body_of(frame, is_flexible=head.version >= kafka.request.flexible_from)
        if kafka.key == SASL_AUTHENTICATE.key:
            kafka = self._login.authenticate
        api = kafka.api
        if kafka.api_of is not None and self._caller.unauthenticated is None:
            api = kafka.api_of(frame, head.version, body_at)
        return self._begin_task(kafka, api, frame, Exchange(kafka, head, body_at))

    def _body_of(self, frame: memoryview, *, is_flexible: bool) -> int:
        """Where the body of a request begins. Notes the client's id. Raises MalformedMessage."""
        last = self._client_headers[is_flexible]
        end = HEAD_BYTES + len(last)
        if last and frame[HEAD_BYTES:end] == last:  # a client has one id: to decode it each time takes a dozen calls
            return end
        client_id, end = client_of(frame, is_flexible=is_flexible)
        if client_id[:CLIENT_ID_MAX] != self._caller.client_id:
            self._caller = replace(self._caller, client_id=client_id[:CLIENT_ID_MAX])
            self._client_headers = [b"", b""]
        kept = frame[HEAD_BYTES:end] if end <= HEADER_KEPT_MAX else b""
        self._client_headers[is_flexible] = bytes(kept)
        return end

    def _begin_task(
        self, kafka: KafkaApi, api: Api[Any, Any], frame: memoryview, exchange: Exchange | BareToken
    ) -> bool:
        self._last_request = api.name
        opened = _Opened(self._shared.boundary.meters.of(api.name), is_pipelined=kafka.is_pipelined)
        opened.ends_if_refused = kafka.ends_if_refused
        request = Request(frame, exchange, self._queued_ns)
        opened.task = self._loop.create_task(self._serve(opened, api, exchange, request))
        opened.task.add_done_callback(partial(self._served, len(frame)))
        self._shared.tasks.add(opened.task)
        self._opened.append(opened)
        return True

    def _answer(self, answer: KafkaAnswer, *, is_last: bool = False) -> None:
        """Answer a request whose turn it is, without the boundary."""
        opened = _Opened(None, is_pipelined=False)
        opened.answer, opened.is_last = answer, is_last
        self._opened.append(opened)
        self._send_answers()

    async def _serve(
        self, opened: _Opened, api: Api[Any, Any], exchange: Exchange | BareToken, request: Request
    ) -> None:
        caller = self._caller
        if api.audience is Audience.ANYONE:
            caller = replace(caller, principal=ANONYMOUS, unauthenticated=self._unproved)
        try:
            answered = await self._shared.boundary.serve(api, request, caller)
            if isinstance(answered.value, AuthenticateAnswer):
                self._login_answered(answered.value)
            opened.value, opened.throttle_time_ms = answered.value, answered.throttle_time_ms
            opened.answer_with(answered.data)
        except TidelogError as error:
            refusal = exchange.refuse(error)
            opened.is_last = opened.ends_if_refused
            if refusal is None:
                self._log_end(type(error).__name__, error.message)
            opened.answer_with(_CLOSES if refusal is None else refusal)
            opened.throttle_time_ms = getattr(error, "throttle_time_ms", 0)
        self._send_answers()

    def _served(self, frame_bytes: int, task: asyncio.Task[None]) -> None:
        # Not in `_serve`: of a task that is cancelled before its first step, as by the end of the connection, no line
        # runs.
        self._shared.budget.give_back(frame_bytes)
        self._shared.tasks.discard(task)
        defect = None if task.cancelled() else task.exception()
        if defect is not None:
            _log.error("a defect: a request of %s failed", self, exc_info=defect)
            self._abort()

    def _login_answered(self, answer: AuthenticateAnswer) -> None:
        """Raises SaslSessionEnded."""
        session = self._login.answered(answer)
        if session is not None:
            session.streams.add(self)
            self._caller = replace(self._caller, principal=session.principal, unauthenticated=None)
            self._login_until_s = inf

    def end_with(self, error: TidelogError) -> None:
        """The session of the client has ended: so does the connection, when what is handled is answered."""
        if self._is_lost:
            return
        self._log_end(type(error).__name__, error.message)
        self._is_over = True
        self.stop()
        self._send_answers()

    # --- answers ------------------------------------------------------------------------------------------------------

    def _send_answers(self) -> None:
        """Send the answers whose turn it is, then begin further requests."""
        while self._opened and self._blocked_s is None and not self._is_lost:
            opened = self._opened[0]
            answer = opened.answer
            if answer is None:
                break
            self._opened.popleft()
            if answer is _CLOSES:
                self._close()
                return
            if answer is not NO_ANSWER:
                self._unsent.append(opened)
                self._transport.writelines(answer.pieces)
                self._written(opened)
            if opened.is_last:
                self._close()
                return
            if opened.throttle_time_ms:
                self._mute(opened.throttle_time_ms)
        if self._is_over and not self._opened:
            self._close()
            return
        self._active_s = self._loop.time()
        self._begin_frames()

    def _written(self, opened: _Opened) -> None:
        """The transport has an answer, or what the system did not take of it."""
        if self._blocked_s is None:
            self._all_sent()
            return
        charged = _charged(opened.value)
        if not charged:  # the value of an answer about many topics is as large as its bytes
            opened.value, opened.answer = None, NO_ANSWER
        records = charged // self._caller.answer_copies
        self._shared.unread.add(self, max(0, self._transport.get_write_buffer_size() - records))

    def _all_sent(self) -> None:
        for opened in self._unsent:
            opened.sent()
        self._unsent.clear()

    def _mute(self, throttle_time_ms: int) -> None:
        until_s = self._loop.time() + throttle_time_ms / 1_000
        if self._unmuting is not None:  # by the answer before, which may have been computed later
            until_s = max(until_s, self._unmuting.when())
            self._unmuting.cancel()
        self._unmuting = self._loop.call_at(until_s, self._unmute)

    def _unmute(self) -> None:
        self._unmuting = None
        for waiting in self._frames:  # what it waits because of a quota is not the time of a request
            waiting.since_ns = self._now_ns()
        self._begin_frames()

    # --- the end ------------------------------------------------------------------------------------------------------

    def _adjust_reading(self) -> None:
        waits = self._frames or self._needs_room or self._unmuting is not None or self._is_closing
        reads = not waits
        if reads is self._reads or self._transport.is_closing():
            return
        self._reads = reads
        if reads:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _refuse(self, what: str) -> None:
        self._log_end("it sent no request that is offered", f"it sent {what}")
        self._close()

    def _close(self) -> None:
        """End the connection when what was written has left. Nothing more is read."""
        self._is_closing = True
        self._transport.close()

    def _abort(self) -> None:
        self._is_closing = True
        self._transport.abort()

    def stop(self) -> None:
        """Begin no further request; those that are handled are answered."""
        self._is_closing = True
        self._adjust_reading()

    def end(self) -> None:
        """End the connection; what was written still leaves."""
        for opened in self._opened:
            if opened.task is not None:
                opened.task.cancel()
        self._close()

    @property
    def host(self) -> str:
        """The address of the client, without the port."""
        return self._caller.host

    def end_unread(self) -> None:
        """End the connection: there is no memory for its answers."""
        self._log_end("answers that nobody reads have no more memory")
        self._abort()

    @property
    def is_busy(self) -> bool:
        """True if an answer has not left."""
        return bool(self._opened or self._unsent)

    def check(self) -> None:
        """End the connection if its client is idle, too old, or holds memory that others wait for."""
        now, why = self._loop.time(), ""
        if self._blocked_s is not None and (silent_ms := (now - self._blocked_s) * 1_000) >= SLOW_READER_MS:
            if self._shared.unread.is_short or any(_delays_others(opened.value) for opened in self._unsent):
                why = "it has not read an answer, and other requests wait for memory"
            elif silent_ms >= UNREAD_ANSWER_MS:
                why = "it has not read an answer"
        elif self._frame_since_s is not None and self._shared.budget.is_short(len(self._buffer)):
            if (now - self._frame_since_s) * 1_000 >= FRAME_MS + self._filled / FRAME_BYTES_PER_MS:
                why = "its request arrives slowly, and other requests wait for memory"
        elif now >= self._ends_s and (not self.is_busy or now >= self._ends_s + GRACE_MS / 1_000):
            why = "it has reached its age, so that its client proves its identity again"
        elif now >= self._login_until_s:
            why = "its client has not logged in"
        elif not self.is_busy and (now - self._active_s) * 1_000 >= self._shared.idle_ms_max:
            why = "it is idle"
        if why:
            self._log_end(why)
            self._abort()

    def _log_end(self, cause: str, text: str = "") -> None:
        self._shared.log.closed(cause, self.host, f"closing the connection of {self}: {text or cause}")


def _charged(value: object) -> int:
    """The bytes of an answer that are in the memory budget of the node: records, each copy of them."""
    return value.charge.size if isinstance(value, FetchAnswer) and value.charge is not None else 0


def _delays_others(value: object) -> bool:
    return isinstance(value, FetchAnswer) and value.charge is not None and value.charge.delays_others


def _foreign(size: int) -> str:
    """What a client speaks whose first bytes are this number; empty if it may be Kafka's protocol."""
    begin = size.to_bytes(4, "big", signed=True)
    if begin == b"PRI ":
        return "gRPC, as clients of Tidelog do: they have a listener of their own (GRPC, by default at port 9192)"
    return "TLS, and the listener is in plain text" if begin[:2] == b"\x16\x03" else ""
