"""Counters of the requests of one API, and the measurement of single requests.

The time of a request has the parts that Kafka names: queue (from the arrival to the start of the handler), local (work
of the handler on the loop), remote (the handler waits: for acks, for records, for the controller) and send (until the
answer is written). Queue time is 0 for gRPC, which hands over a message only when the handler asks for it; over
Kafka's protocol a request waits for memory and for the earlier ones of its connection.

Invariants: a request is counted once, when it is answered. A request whose caller left is not counted.
Not here: the text of the metrics (metrics.py), which requests are logged (slow_requests.py).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Coroutine, Generator, Iterator
from types import TracebackType
from typing import Any, Final, Generic, TypeVar

from node.runtime.slow_requests import SlowRequestLog
from tidelog.errors import TidelogError

Result = TypeVar("Result")

BOUNDS_MS: Final = (
    *(0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500),
    *(1_000, 2_500, 5_000, 10_000, 30_000, 60_000),
)
"""Upper bounds of the histogram of total times: from an answer out of memory to the longest timeouts of clients."""
_NO_LOG: Final = SlowRequestLog(0, lambda: 0)
_BOUNDS_NS: Final = tuple(int(bound * 1e6) for bound in BOUNDS_MS)


def name_of(error: TidelogError) -> str:
    """The error in labels of metrics: Kafka's name for it, or the name of its class."""
    return error.kafka_name or type(error).__name__


class RequestMeter:
    """The counters of one API. Times are in nanoseconds."""

    __slots__ = (
        "answered",
        "api",
        "errors",
        "failed",
        "followers",
        "local_ns",
        "now_ns",
        "queue_ns",
        "remote_ns",
        "request_bytes",
        "response_bytes",
        "send_ns",
        "slow",
        "streams_ended",
        "streams_open",
        "times",
    )

    def __init__(self, api: str = "", now_ns: Callable[[], int] = lambda: 0, slow: SlowRequestLog = _NO_LOG) -> None:
        """now_ns: monotonic time."""
        self.api, self.now_ns, self.slow = api, now_ns, slow
        self.answered = 0
        """Requests that succeeded as a whole; their entries may have errors."""
        self.failed: dict[str, int] = {}
        """Requests that failed as a whole, by error."""
        self.errors: dict[str, int] = {}
        """Errors in answers, of whole requests and of entries."""
        self.request_bytes = self.response_bytes = 0
        self.queue_ns = self.local_ns = self.remote_ns = self.send_ns = 0
        self.times = [0] * (len(BOUNDS_MS) + 1)
        """Requests by total time, with queue and without send: how many above one bound and not above the next."""
        self.streams_open = 0
        self.streams_ended: dict[str, int] = {}
        self.followers: RequestMeter | None = None
        """The counters of the same API for replicas; None: there were none."""

    def of_followers(self) -> RequestMeter:
        """The counters of the requests of replicas, apart from those of consumers, as Kafka's FetchFollower: a follower
        waits for records without limit, which says nothing about what a consumer waits for."""
        if self.followers is None:
            self.followers = RequestMeter(f"{self.api}.follower", self.now_ns, self.slow)
        return self.followers

    def count_error(self, error: TidelogError) -> None:
        """Count an error in an answer."""
        name = name_of(error)
        self.errors[name] = self.errors.get(name, 0) + 1

    def stream_ended(self, outcome: str) -> None:
        """Count the end of a stream. outcome: `ok`, `ended` if the caller left, or the error's name."""
        self.streams_open -= 1
        self.streams_ended[outcome] = self.streams_ended.get(outcome, 0) + 1


class MeteredRequest:
    """One request until it is answered.

    The entries of a message on a stream are answered one by one: `with request:` surrounds the handling of the message,
    and the request ends with that or with `entry_ended` for its last entry, whichever comes last.
    """

    __slots__ = (
        "_arrived_ns",
        "_client_id",
        "_connection",
        "_local_ns",
        "_meter",
        "_now_ns",
        "_open",
        "_queue_ns",
        "_wait_ms",
        "_worked",
    )

    def __init__(
        self,
        meter: RequestMeter,
        connection: str,
        client_id: str,
        entries: int,
        wait_ms: int | None,
        worked: Callable[[int], None] | None = None,
        queue_ns: int = 0,
    ) -> None:
        """connection, client_id: for the slow-request log. entries: how many parts are answered one by one. wait_ms:
        how long the request asks to wait for records; None: without a limit. worked: called with the local time at the
        end (nanoseconds). queue_ns: how long the request has waited since it arrived."""
        self._meter = meter
        self._now_ns = meter.now_ns
        self._connection = connection
        self._client_id = client_id
        self._open = entries + 1
        self._wait_ms = wait_ms
        self._worked = worked
        self._local_ns = 0
        self._queue_ns = queue_ns
        self._arrived_ns = meter.now_ns()

    def __enter__(self) -> None: ...

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _at: TracebackType | None
    ) -> None:
        now = self._now_ns()
        self._local_ns += now - self._arrived_ns
        if error is None:
            self._open -= 1
            if not self._open:
                self._meter.answered += 1
                self._end(now)
        elif isinstance(error, TidelogError):
            self.fail(error)

    def waits(self, wait_ms: int | None) -> None:
        """How long the request may wait, once that is known; None: without a limit."""
        self._wait_ms = wait_ms

    def admitted(self) -> None:
        """The request may be handled now. What it has waited because of a quota does not count as its time."""
        self._arrived_ns = self._now_ns()

    def on_loop(self, work: Coroutine[Any, Any, Result]) -> OnLoop[Result]:
        """Await the handler, and count its work on the loop as local time."""
        return OnLoop(self, work)

    def worked_since(self, began_ns: int) -> None:
        """Count the time since then as local time."""
        self._local_ns += self._now_ns() - began_ns

    def entry_ended(self) -> None:
        """The outcome of one more entry is known."""
        self._open -= 1
        if not self._open:
            self._meter.answered += 1
            self._end(self._now_ns())

    def fail(self, error: TidelogError) -> None:
        """The request failed as a whole. Entries that end later are not counted."""
        self._open = -1
        name, failed = name_of(error), self._meter.failed
        failed[name] = failed.get(name, 0) + 1
        self._meter.count_error(error)
        self._end(self._now_ns())

    def abandon(self) -> None:
        """The caller went away before the answer. The work is charged, or a client that always does so would have no
        quota."""
        if self._worked is not None:
            self._worked(self._local_ns)

    def _end(self, now: int) -> None:
        meter, local = self._meter, self._local_ns
        total = now - self._arrived_ns
        meter.local_ns += local
        if self._worked is not None:
            self._worked(local)
        meter.remote_ns += total - local
        meter.queue_ns += self._queue_ns
        meter.times[bisect_left(_BOUNDS_NS, total + self._queue_ns)] += 1
        if total > meter.slow.threshold_ns:
            meter.slow.look_at(
                meter.api, total, local, self._wait_ms, connection=self._connection, client_id=self._client_id
            )


class OnLoop(Generic[Result]):
    """An awaitable that runs a coroutine and measures the time between its waits."""

    __slots__ = ("_request", "_work")

    def __init__(self, request: MeteredRequest, work: Coroutine[Any, Any, Result]) -> None:
        self._request, self._work = request, work

    def __await__(self) -> Generator[Any, Any, Result]:
        request, work = self._request, self._work
        now_ns = request._now_ns
        thrown: BaseException | None = None
        while True:
            began = now_ns()
            try:
                waits_for = work.send(None) if thrown is None else work.throw(thrown)
            except StopIteration as end:
                result: Result = end.value
                return result
            finally:
                thrown = None  # it refers to this frame
                request._local_ns += now_ns() - began
            try:
                yield waits_for
            except BaseException as error:  # noqa: BLE001 (cancellation above all; the coroutine decides)
                thrown = error


class RequestMeters:
    """The meters of a node by API. Listeners share them."""

    def __init__(self, now_ns: Callable[[], int] = lambda: 0, slow: SlowRequestLog = _NO_LOG) -> None:
        self.now_ns, self._slow = now_ns, slow
        self._meters: dict[str, RequestMeter] = {}

    def of(self, api: str) -> RequestMeter:
        """The meter of that API; a new one the first time."""
        meter = self._meters.get(api)
        if meter is None:
            meter = self._meters[api] = RequestMeter(api, self.now_ns, self._slow)
        return meter

    def __iter__(self) -> Iterator[RequestMeter]:
        for meter in list(self._meters.values()):
            yield meter
            if meter.followers is not None:
                yield meter.followers
