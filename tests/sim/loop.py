"""A deterministic asyncio event loop: virtual time, no selector, no threads, every choice from one seed.

Kept true:
  1. Time moves only when nothing is ready, and then straight to the next timer.
  2. Ready callbacks run in the order in which they became ready, as asyncio promises. Timers due at the same instant
     run in an order drawn from the seed, since asyncio promises none.
  3. The same seed gives the same run: tasks and futures hash by their number, not by their address, so that the sets
     inside asyncio (task groups, `asyncio.wait`) are walked in the same order each time.
  4. Nothing that belongs to a dead process runs; what belongs to a paused one waits (process.py).
  5. A callback takes no time, but for one of a slow process and what it `owes_us` for calls of the disk: its next one
     waits until then, in its turn. Small debts are paid together.

A goal that cannot be reached because nothing is scheduled is a `Deadlock`; callbacks that go on for ever at one instant
are a `Runaway`. What reaches the exception handler is a defect and ends the run.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import heapq
import math
import random
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from tests.sim.process import CURRENT, PAID_FROM_US, Process, ProcessState

if TYPE_CHECKING:
    from asyncio.base_events import (
        BaseEventLoop as LoopInterface,
    )  # all its methods are there: what is not ours, refuses
else:
    LoopInterface = asyncio.AbstractEventLoop

T = TypeVar("T")

CALLBACKS_PER_INSTANT_MAX = 200_000  # a busy cluster needs some thousands; a loop of `sleep(0)` passes any limit
MICROS = 1_000_000
NEVER_US = 1 << 62


class SimulationError(AssertionError):
    """The simulated world broke a rule: a checker, a defect in a task, or the loop itself says so."""


class Deadlock(SimulationError):
    """Nothing is scheduled any more, and what was waited for has not come."""


class Runaway(SimulationError):
    """Callbacks go on and on without time passing."""


class OutOfTime(SimulationError):
    """What was waited for did not come within its bound of virtual time."""


class Defect(SimulationError):
    """A callback or task failed and nobody took the exception."""


class SimFuture(asyncio.Future[T]):
    """A future that hashes by its number, which the loop gives it."""

    __slots__ = ("number",)
    number: int

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return self is other


class SimTask(asyncio.Task[T]):
    """A task that hashes by its number and knows its process."""

    def __init__(
        self,
        number: int,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        context: contextvars.Context,
        **options: Any,
    ) -> None:
        self.number = number
        self.context = context
        super().__init__(coro, context=context, **options)

    @property
    def owner(self) -> Process | None:
        return self.context.get(CURRENT)

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return self is other


class SimHandle(asyncio.TimerHandle):
    """A callback and the process it belongs to (None: the world itself). Of what its bases have there is only what is
    asked for: a second of virtual time makes some thousands of these."""

    __slots__ = ("_when_us", "owner")
    owner: Process | None

    def __init__(
        self, when_us: int, callback: Callable[..., object], args: tuple[Any, ...], context: contextvars.Context
    ) -> None:
        self._when_us, self._callback, self._args, self._context = when_us, callback, args, context
        self._cancelled = False
        self.owner = context.get(CURRENT)

    def when(self) -> float:
        return self._when_us / MICROS

    def cancel(self) -> None:
        self._cancelled = True
        self._callback = self._args = None  # type: ignore[assignment]  # as its bases let go of what they hold

    def __repr__(self) -> str:
        return f"<{'cancelled' if self._cancelled else repr(self._callback)} at {self.when():.6f}>"


class SimLoop(LoopInterface):
    """See the module's words. Driven by `run_until`, `run_for` or `run_until_complete`; never by a selector."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.now_us = 0  # virtual time, in microseconds since the world began
        self.world = contextvars.Context()  # of events that belong to no process; nothing is ever set in it
        self.callbacks_run = 0
        self.after_callback: Callable[[Process], None] | None = None  # after whatever stirred a process
        self._rng = rng
        self._ready: deque[SimHandle] = deque()
        self._timers: list[tuple[int, int, int, SimHandle]] = []
        self._numbers = 0
        self._this_instant = 0
        self._running = False
        self._stopping = False
        self._closed = False
        self._defects: list[str] = []
        self._muted = False

    # --- time and callbacks ---

    def time(self) -> float:
        return self.now_us / MICROS

    def call_soon(  # type: ignore[override]  # a handle of ours
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> SimHandle:
        if self._closed:
            self._refuse_closed()
        handle = SimHandle(self.now_us, callback, args, contextvars.copy_context() if context is None else context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]  # a handle of ours
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> SimHandle:
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]  # a handle of ours
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> SimHandle:
        return self.call_at_us(self.now_us + math.ceil(delay * MICROS - 0.001), callback, *args, context=context)

    def call_at(  # type: ignore[override]  # a handle of ours
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> SimHandle:
        return self.call_at_us(math.ceil(when * MICROS - 0.001), callback, *args, context=context)

    def call_at_us(
        self, when_us: int, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> SimHandle:
        """As `call_at`, in whole microseconds; a time that has passed means now."""
        if self._closed:
            self._refuse_closed()
        if when_us < self.now_us:
            when_us = self.now_us
        handle = SimHandle(when_us, callback, args, contextvars.copy_context() if context is None else context)
        self._numbers += 1
        heapq.heappush(self._timers, (when_us, self._rng.getrandbits(30), self._numbers, handle))
        return handle

    def call_world_later_us(self, delay_us: int, callback: Callable[..., object], *args: Any) -> SimHandle:
        """An event of the world's own: it outlives whatever process is running now."""
        return self.call_at_us(self.now_us + delay_us, callback, *args, context=self.world)

    @staticmethod
    def _refuse_closed() -> NoReturn:
        raise RuntimeError("the simulated event loop is closed")

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Asyncio tells of a cancelled timer; it is dropped when its time comes."""

    # --- running ---

    def step(self) -> bool:
        """Run one callback, moving time if none is ready. False: nothing at all is left."""
        ready = self._ready
        while True:
            if not ready and not self._advance():
                return False
            handle = ready.popleft()
            if handle._cancelled:
                continue
            owner = handle.owner
            if owner is not None and owner.state is not ProcessState.RUNNING:
                due = self._hold(owner, handle)
                if due is None:
                    continue
                handle = due
            break
        self.callbacks_run += 1
        self._this_instant += 1
        if self._this_instant > CALLBACKS_PER_INSTANT_MAX:
            self._refuse_runaway()
        callback = handle._callback
        try:
            handle._context.run(callback, *handle._args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as failed:  # noqa: BLE001 - as asyncio's own handles do
            told = f"{callback!r} failed"
            self.call_exception_handler({"message": told, "exception": failed, "handle": handle})
        if owner is not None and owner.stirred:
            self._look_after(owner)
        if self._defects:
            raise Defect("\n".join(self._defects))
        return True

    def _advance(self) -> bool:
        timers = self._timers
        while timers and timers[0][3]._cancelled:
            heapq.heappop(timers)
        if not timers:
            return False
        now = timers[0][0]
        self.now_us, self._this_instant = now, 0
        while timers and timers[0][0] == now:
            self._ready.append(heapq.heappop(timers)[3])
        return True

    def _refuse_runaway(self) -> NoReturn:
        callbacks = [getattr(handle, "_callback", None) for handle in self._ready]
        waiting = Counter(repr(getattr(callback, "__self__", callback))[:200] for callback in callbacks)
        raise Runaway(
            f"{CALLBACKS_PER_INSTANT_MAX} callbacks at {self.time():.6f} s and no end; ready: {waiting.most_common(3)}"
        )

    def resume(self, process: Process) -> None:
        """Let a paused process go on: what came due meanwhile becomes ready in its order, now or in its turn."""
        if process.step_us or self.now_us < process.busy_until_us:
            process.state = ProcessState.SLOW
            self._call_its_turn(process)
            return
        process.state = ProcessState.RUNNING
        self._ready.extendleft(reversed(process.held_back))
        process.held_back.clear()

    def _look_after(self, process: Process) -> None:
        """A callback has moved something, or has taken its time."""
        if process.owes_us >= PAID_FROM_US:
            self._pay(process)
        if self.after_callback is not None:
            process.stirred = False
            self.after_callback(process)

    def _pay(self, process: Process) -> None:
        """What its loop has done takes its time now."""
        process.busy_until_us = max(self.now_us, process.busy_until_us) + process.owes_us
        process.owes_us = 0
        if process.state is ProcessState.RUNNING:
            process.state = ProcessState.SLOW
        if process.state is ProcessState.SLOW:
            self._call_its_turn(process)

    def freeze(self, process: Process) -> None:
        """Its loop is in a call of the disk that does not end before `thaw`."""
        process.busy_until_us = NEVER_US
        if process.state is ProcessState.RUNNING:
            process.state = ProcessState.SLOW

    def thaw(self, process: Process) -> None:
        """The call ends; nothing happens where there is none."""
        if process.busy_until_us >= NEVER_US:
            process.busy_until_us = self.now_us
            if process.state is ProcessState.SLOW:
                self._call_its_turn(process)

    def slow(self, process: Process, step_us: int) -> None:
        """From now on a callback of a process takes up to twice so long, drawn for each; 0: none takes any time, and
        what has waited for its turn becomes ready now."""
        process.step_us = step_us
        if process.state is ProcessState.SLOW and not step_us:
            if process.busy_until_us < NEVER_US:
                process.busy_until_us = self.now_us
            self.resume(process)
        elif process.state is ProcessState.RUNNING and step_us:
            process.state = ProcessState.SLOW

    def _hold(self, process: Process, handle: SimHandle) -> SimHandle | None:
        """What is to run now that a callback of a process comes due that is not simply running; mostly nothing."""
        if process.state is ProcessState.DEAD:
            return None
        held_back = process.held_back
        if handle._callback is not _turn:
            held_back.append(handle)
        if process.state is ProcessState.PAUSED or self.now_us < process.busy_until_us:
            return None
        while held_back and held_back[0]._cancelled:
            held_back.popleft()
        if not held_back:
            return None
        if not process.step_us:  # it was busy for a while, and is as fast as ever
            self.resume(process)
            return None
        process.busy_until_us = self.now_us + 1 + int(self._rng.random() * 2 * process.step_us)
        self._call_its_turn(process)
        due: SimHandle = held_back.popleft()
        return due

    def _call_its_turn(self, process: Process) -> None:
        if process.busy_until_us < NEVER_US:
            self.call_at_us(process.busy_until_us, _turn, context=process.context())

    def run_until(self, reached: Callable[[], bool], *, within: float, what: str | Callable[[], str] = "") -> None:
        """Run until `reached()`; asked after every callback. `within` is in seconds of virtual time."""
        deadline = self.now_us + math.ceil(within * MICROS)
        timer = self.call_at_us(deadline, lambda: None, context=self.world)
        with self._as_running_loop():
            while not reached():
                if not self.step():
                    raise Deadlock(f"nothing is scheduled any more{self._named(what)}")
                if self.now_us >= deadline and not self._ready and not reached():
                    raise OutOfTime(f"not within {within} s of virtual time{self._named(what)}")
        timer.cancel()

    def run_for(self, seconds: float) -> None:
        """Let so much virtual time pass."""
        done: list[str] = []
        self.call_at_us(self.now_us + math.ceil(seconds * MICROS), done.append, "over", context=self.world)
        with self._as_running_loop():
            while not done:
                self.step()

    @staticmethod
    def _named(what: str | Callable[[], str]) -> str:
        said = what() if callable(what) else what
        return f": {said}" if said else ""

    def run_until_complete(self, future: Generator[Any, None, T] | Awaitable[T]) -> T:
        with self._as_running_loop():
            task: asyncio.Future[T] = asyncio.ensure_future(future, loop=self)  # type: ignore[arg-type]  # noqa: TID251
            while not task.done():
                if not self.step():
                    raise Deadlock(f"nothing is scheduled any more, and {task!r} is not done")
        return task.result()

    def run_forever(self) -> None:
        self._stopping = False
        with self._as_running_loop():
            while not self._stopping and self.step():
                pass

    @contextlib.contextmanager
    def _as_running_loop(self) -> Generator[None, None, None]:
        if self._running:
            raise RuntimeError("the simulated event loop is running already: a task may not drive the world")
        self._running = True
        asyncio._set_running_loop(self)
        try:
            yield
        finally:
            asyncio._set_running_loop(None)
            self._running = False

    def stop(self) -> None:
        self._stopping = True

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        self._ready.clear()
        self._timers.clear()
        self._closed = True

    async def shutdown_asyncgens(self) -> None:
        """Nothing to do: generators end with their tasks."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Nothing to do: there is no default executor."""

    # --- futures and tasks ---

    def create_future(self) -> asyncio.Future[Any]:
        self._numbers += 1
        future: SimFuture[Any] = SimFuture(loop=self)
        future.number = self._numbers
        return future

    def create_task(  # type: ignore[override]  # newer asyncio passes more options
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
        **options: Any,
    ) -> asyncio.Task[T]:
        self._numbers += 1
        if context is None:
            context = contextvars.copy_context()
        owner = context.get(CURRENT)
        named = name or f"{owner.name if owner else 'world'}#{self._numbers}"
        return SimTask(self._numbers, coro, loop=self, name=named, context=context, **options)

    def unfinished_tasks(self) -> list[SimTask[Any]]:
        """Of all processes, oldest first."""
        tasks = [task for task in asyncio.all_tasks(self) if isinstance(task, SimTask)]
        return sorted(tasks, key=lambda task: task.number)

    def tasks_of(self, process: Process) -> list[SimTask[Any]]:
        """Unfinished tasks of a process, oldest first."""
        return [task for task in self.unfinished_tasks() if task.owner is process]

    # --- refusals ---

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> NoReturn:  # type: ignore[override]
        raise RuntimeError("no threads in a simulated world: take an Executor by the constructor")

    # --- what goes wrong ---

    get_debug = staticmethod(bool)  # False, without a call in Python: every future asks

    def set_debug(self, enabled: bool) -> None:
        """There is no debug mode."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self._muted:
            return
        told = [str(context.get("message", "a callback failed"))]
        if (failed := context.get("exception")) is not None:
            told.append(f"{type(failed).__name__}: {failed}")
            told.append(_where(failed))
        if (subject := context.get("task") or context.get("future") or context.get("handle")) is not None:
            told.append(repr(subject)[:300])
        self._defects.append(" | ".join(part for part in told if part))

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    def raise_defects(self) -> None:
        """Raise what went wrong and has not been raised yet."""
        if self._defects:
            raise Defect("\n".join(self._defects))

    def dispose(self) -> None:
        """End of the world: every unfinished task goes, without a sound and without running on.

        A coroutine that awaits while it is being closed is closed again, until it gives up.
        """
        self._muted = True
        unfinished = self.unfinished_tasks()  # nothing else holds one that has not begun
        self._ready.clear()
        self._timers.clear()
        for task in unfinished:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coro = task.get_coro()
            for _ in range(100):
                try:
                    task.context.copy().run(coro.close)
                    break
                except (Exception, BaseExceptionGroup):  # noqa: BLE001 - what it says while it is put away counts not
                    continue
        self.close()


def _turn() -> None:
    """A slow process is done with a callback: the next one may run."""


def _where(error: BaseException) -> str:
    """The innermost frames of an error, on one line."""
    frames = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        frames.append(f"{code.co_filename.rsplit('/', 2)[-1]}:{trace.tb_lineno} {code.co_name}")
        trace = trace.tb_next
    return " < ".join(reversed(frames[-6:]))
