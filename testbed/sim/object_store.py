"""An object store beside a simulated cluster: slow, away for a while, full, failing before or after a write took
effect, late after its caller has given up. It lies about nothing: what it says is there, is there, whole.

A call is a request that reaches the store after a while, takes effect there as an event of the world, and is answered
after a while. The process that called may have ended meanwhile: its upload takes effect all the same, as with a real
store.

Invariants: an object appears whole or not at all. Node and store share nothing but calls: objects outlive every node.
Calls come from work of an executor only; one from an event loop fails the world. Not here: what must be in the store
(remote_segments.py).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from testbed.fake_object_store import FakeObjectStore, StoreCall
from testbed.sim import executor
from testbed.sim.clock import WORLD_BEGAN_MS
from testbed.sim.executor import Job
from testbed.sim.loop import MICROS, SimLoop
from tidelog.errors import TidelogError
from tidelog.tiering.object_store import StoredObject
from tidelog.tiering.remote_errors import ObjectStoreUnavailable
from tidelog.types import Buffer

URL: Final = "sim://bucket"
GIVES_UP_US: Final = 3 * MICROS
"""A caller without an answer gives up after this time."""

Matches = Callable[[StoreCall], bool]


@dataclass(slots=True)
class StorePace:
    """The speed and the faults of a store. delay_us: of a request, and of its answer, each. Shares of calls: `fails`
    are refused before they take effect; `loses` lose their answer; `late` take effect up to `late_us` after their
    caller has given up."""

    delay_us: tuple[int, int] = (500, 20_000)
    slow_by: float = 1.0
    away: bool = False
    fails: float = 0.0
    loses: float = 0.0
    late: float = 0.0
    late_us: int = 5 * MICROS


class _Request:
    """A call in progress."""

    def __init__(self, call: StoreCall, effect: Callable[[], Any], job: Job) -> None:
        self.call, self.effect, self.job = call, effect, job
        self.outcome: Any = None
        self.is_answered = self.is_over = False


class HeldCalls:
    """Requests that a story holds back on their way to the store."""

    def __init__(self, store: SimObjectStore, matches: Matches) -> None:
        self._store, self.matches = store, matches
        self._requests: list[_Request] = []
        self.holds = True

    @property
    def count(self) -> int:
        return len(self._requests)

    @property
    def calls(self) -> list[StoreCall]:
        return [each.call for each in self._requests]

    def add(self, request: _Request) -> None:
        self._requests.append(request)

    def give_up(self) -> None:
        """Let the callers give up. The requests are still under way, and reach the store with `release`."""
        for each in self._requests:
            self._store.answer(each, _no_answer())

    def let_pass(self) -> None:
        """Hold back nothing more; what is held stays so."""
        self.holds = False

    def release(self) -> None:
        """Let everything reach the store now, from ended processes too."""
        self.holds = False
        held, self._requests = self._requests, []
        for each in held:
            self._store.reach(each)


class SimObjectStore:
    """`ObjectStore` documents its methods. `there`: the objects, which a test may look at, lose and fill."""

    def __init__(self, loop: SimLoop, rng: random.Random, note: Callable[[str], None]) -> None:
        self._loop, self._rng, self._note = loop, rng, note
        self.there = FakeObjectStore(URL, clock=lambda: WORLD_BEGAN_MS + loop.now_us // 1_000)
        self.pace = StorePace()
        self.was_late: set[str] = set()
        """Keys of objects that were written after their caller had given up, or had ended."""
        self.on_change: Callable[[StoreCall], None] = lambda _: None
        """Called after a write or a deletion has taken effect, by an event of the world."""
        self._held: list[HeldCalls] = []

    @property
    def url(self) -> str:
        return URL

    def hold(self, operation: str, matches: Matches = lambda _: True) -> HeldCalls:
        """Hold back the requests of an operation until released."""
        held = HeldCalls(self, lambda call: call.operation == operation and matches(call))
        self._held.append(held)
        return held

    def heal(self) -> None:
        """End all faults."""
        self.pace = StorePace()
        self.there.capacity = None
        for each in self._held:
            each.release()
        self._held.clear()

    def fill(self, room: int | None) -> None:
        """Leave that many bytes of space; None: no limit."""
        used = sum(map(len, self.there.objects.values()))
        self.there.capacity = None if room is None else used + room

    # --- the store ------------------------------------------------------------------------------------------------

    def put(self, key: str, parts: Iterable[Buffer]) -> None:
        data = [bytes(part) for part in parts]
        self._call(StoreCall("put", key), lambda: self.there.put(key, data))

    def size(self, key: str) -> int:
        found: int = self._call(StoreCall("size", key), lambda: self.there.size(key))
        return found

    def get_range(self, key: str, start: int, size: int) -> Buffer:
        found: Buffer = self._call(
            StoreCall("get_range", key, start, size), lambda: self.there.get_range(key, start, size)
        )
        return found

    def drop_cached(self, key: str) -> None:
        """Nothing: it concerns the memory of the machine that calls, and reaches no store."""

    def list(self, prefix: str) -> Iterator[StoredObject]:
        found: list[StoredObject] = self._call(StoreCall("list", prefix), lambda: [*self.there.list(prefix)])
        return iter(found)

    def delete(self, key: str) -> None:
        self._call(StoreCall("delete", key), lambda: self.there.delete(key))

    # --- calls ----------------------------------------------------------------------------------------------------

    def _call(self, call: StoreCall, effect: Callable[[], Any]) -> Any:
        job = executor.running
        if job is None:
            self._loop.call_exception_handler({"message": f"{call.operation} of {call.key} on the event loop"})
            raise _no_answer()
        request = _Request(call, effect, job)
        self._loop.call_world_later_us(self._delay_us(), self._send, request)
        while not request.is_answered:
            job.hand_over(None)
        if isinstance(request.outcome, TidelogError):
            raise request.outcome
        return request.outcome

    def _delay_us(self) -> int:
        return int(self._rng.uniform(*self.pace.delay_us) * self.pace.slow_by)

    def _send(self, request: _Request) -> None:
        pace, draw = self.pace, self._rng.random()
        held = next((each for each in self._held if each.holds and each.matches(request.call)), None)
        if held is not None:
            self._note(f"the store gets no {request.call.operation} of {request.call.key} for now")
            held.add(request)
        elif pace.away or draw < pace.fails:
            self._later(self._rng.randint(1_000, GIVES_UP_US), self.answer, request, _no_answer())
        elif draw < pace.fails + pace.late:
            self._later(GIVES_UP_US, self.answer, request, _no_answer())
            self._later(GIVES_UP_US + self._rng.randint(1, pace.late_us), self.reach, request)
        else:
            self.reach(request)
            if draw < pace.fails + pace.late + pace.loses:
                request.outcome = _no_answer()

    def reach(self, request: _Request) -> None:
        """The request takes effect, and is answered after a while."""
        call = request.call
        is_late = request.is_answered or not request.job.executor.is_alive
        try:
            request.outcome = request.effect()
        except TidelogError as error:
            request.outcome = error
        else:
            if call.operation == "put" and is_late:
                self.was_late.add(call.key)
            if call.operation in ("put", "delete"):
                self._note(f"{'late: ' if is_late else ''}{call.operation} of {call.key}")
                self.on_change(call)
        self._later(self._delay_us(), self.answer, request, None)

    def answer(self, request: _Request, error: TidelogError | None) -> None:
        """Answer a call, unless its caller has given up."""
        if request.is_answered:
            return
        request.outcome, request.is_answered = error or request.outcome, True
        request.job.executor.wake(request.job)

    def _later(self, delay_us: int, callback: Callable[..., None], *args: Any) -> None:
        self._loop.call_world_later_us(delay_us, callback, *args)


def _no_answer() -> ObjectStoreUnavailable:
    return ObjectStoreUnavailable("the object store does not answer: the call is repeated; look at the store")
