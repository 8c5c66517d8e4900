"""A deterministic asyncio event loop: virtual time, no selector, no threads, every choice from one seed.

Invariants:
  1. Time moves only when no callback is ready, and then straight to the next timer.
  2. Ready callbacks run in the order in which they became ready, as asyncio guarantees. Timers due at the same instant
     run in an order drawn from the seed, because asyncio guarantees none.
  3. The same seed gives the same run. Tasks and futures hash by their number, not by their address, so that the sets
     inside asyncio (task groups, `asyncio.wait`) are iterated in the same order each time.
  4. No callback of a dead process runs; those of a paused process wait (process.py).
  5. A callback takes no time, except in a slow process and for its disk calls (`owes_us`): the next callback of that
     process waits until the time has passed. Small amounts are paid together.

A condition that cannot become true because nothing is scheduled raises `Deadlock`; callbacks that never end at one
instant raise `Runaway`. An error that reaches the exception handler is a defect and ends the run.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import heapq
import math
import random
import weakref
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from types import CoroutineType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from testbed.sim.process import CURRENT, PAID_FROM_US, Process, ProcessState

if TYPE_CHECKING:
    from asyncio.base_events import (
        BaseEventLoop as LoopInterface,
    )  # its methods raise NotImplementedError unless this class defines them
else:
    LoopInterface = asyncio.AbstractEventLoop

T = TypeVar("T")

# a busy cluster needs some thousands; an endless loop of `sleep(0)` exceeds any limit
CALLBACKS_PER_INSTANT_MAX = 200_000
MICROS = 1_000_000
NEVER_US = 1 << 62


class SimulationError(AssertionError):
    """The simulation failed: a checker, a defect in a task, or the event loop itself."""


class Deadlock(SimulationError):
    """Nothing is scheduled and the awaited condition is not true."""


class Runaway(SimulationError):
    """Callbacks run without end while no time passes."""


class OutOfTime(SimulationError):
    """The awaited condition did not become true within its bound of virtual time."""


class Defect(SimulationError):
    """A callback or task failed and no code handled the exception."""


class SimFuture(asyncio.Future[T]):
    """A future that hashes by a number from the loop."""

    __slots__ = ("number",)
    number: int

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return self is other


class SimTask(asyncio.Task[T]):
    """A task that hashes by its number and has a process."""

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
    """A callback and its process (None: the world itself). It sets only the used attributes of its base classes: a
    second of virtual time creates some thousands of handles."""

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
        # Release references, as the base classes do.
        self._callback = self._args = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{'cancelled' if self._cancelled else repr(self._callback)} at {self.when():.6f}>"


class SimLoop(LoopInterface):
    """The event loop. `run_until`, `run_for` or `run_until_complete` drive it; there is no selector."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.now_us = 0  # virtual time in microseconds since the start of the world
        self.world = contextvars.Context()  # of events that belong to no process; nothing is ever set in it
        self.callbacks_run = 0
        # called after each callback that changed a process
        self.after_callback: Callable[[Process], None] | None = None
        self._rng = rng
        self._ready: deque[SimHandle] = deque()
        self._timers: list[tuple[int, int, int, SimHandle]] = []
        self._numbers = 0
        # Oldest first, and some that are done. asyncio.all_tasks visits those of all loops, in no order.
        self._tasks: list[weakref.ref[SimTask[Any]]] = []
        self._this_instant = 0
        self._running = False
        self._stopping = False
        self._closed = False
        self._defects: list[str] = []
        self._muted = False

    # --- time and callbacks ---

    def time(self) -> float:
        return self.now_us / MICROS

    def call_soon(  # type: ignore[override]  # returns SimHandle
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> SimHandle:
        if self._closed:
            self._refuse_closed()
        handle = SimHandle(self.now_us, callback, args, contextvars.copy_context() if context is None else context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]  # returns SimHandle
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> SimHandle:
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]  # returns SimHandle
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> SimHandle:
        return self.call_at_us(self.now_us + math.ceil(delay * MICROS - 0.001), callback, *args, context=context)

    def call_at(  # type: ignore[override]  # returns SimHandle
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> SimHandle:
        return self.call_at_us(math.ceil(when * MICROS - 0.001), callback, *args, context=context)

    def call_at_us(
        self, when_us: int, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> SimHandle:
        """Like `call_at`, in whole microseconds; a time in the past means now."""
        if self._closed:
            self._refuse_closed()
        if when_us < self.now_us:
            when_us = self.now_us
        handle = SimHandle(when_us, callback, args, contextvars.copy_context() if context is None else context)
        self._numbers += 1
        heapq.heappush(self._timers, (when_us, self._rng.getrandbits(30), self._numbers, handle))
        return handle

    def call_world_later_us(self, delay_us: int, callback: Callable[..., object], *args: Any) -> SimHandle:
        """Schedule an event of the world itself: it survives the process that runs now."""
        return self.call_at_us(self.now_us + delay_us, callback, *args, context=self.world)

    @staticmethod
    def _refuse_closed() -> NoReturn:
        raise RuntimeError("the simulated event loop is closed")

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Called by asyncio for a cancelled timer; the timer is dropped when it is due."""

    # --- running ---

    def step(self) -> bool:
        """Run one callback; if none is ready, move time to the next timer. Returns False if nothing is scheduled."""
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
            description = f"{callback!r} failed"
            self.call_exception_handler({"message": description, "exception": failed, "handle": handle})
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
            f"{CALLBACKS_PER_INSTANT_MAX} callbacks at {self.time():.6f} s, endless; ready: {waiting.most_common(3)}"
        )

    def resume(self, process: Process) -> None:
        """Continue a paused process: callbacks that came due meanwhile become ready in their order."""
        if process.step_us or self.now_us < process.busy_until_us:
            process.state = ProcessState.SLOW
            self._call_its_turn(process)
            return
        process.state = ProcessState.RUNNING
        self._ready.extendleft(reversed(process.held_back))
        process.held_back.clear()

    def _look_after(self, process: Process) -> None:
        """Handle the effects of a callback: changed state, or time that it took."""
        if process.owes_us >= PAID_FROM_US:
            self._pay(process)
        if self.after_callback is not None:
            process.stirred = False
            self.after_callback(process)

    def _pay(self, process: Process) -> None:
        """Let the time pass that the disk calls of this process take."""
        process.busy_until_us = max(self.now_us, process.busy_until_us) + process.owes_us
        process.owes_us = 0
        if process.state is ProcessState.RUNNING:
            process.state = ProcessState.SLOW
        if process.state is ProcessState.SLOW:
            self._call_its_turn(process)

    def freeze(self, process: Process) -> None:
        """Block the loop of the process in a disk call until `thaw`."""
        process.busy_until_us = NEVER_US
        if process.state is ProcessState.RUNNING:
            process.state = ProcessState.SLOW

    def thaw(self, process: Process) -> None:
        """End the blocking disk call; no effect if there is none."""
        if process.busy_until_us >= NEVER_US:
            process.busy_until_us = self.now_us
            if process.state is ProcessState.SLOW:
                self._call_its_turn(process)

    def slow(self, process: Process, step_us: int) -> None:
        """Let each callback of a process take a random time of up to twice `step_us`. With 0, callbacks take no
        time, and those that waited for their turn become ready now."""
        process.step_us = step_us
        if process.state is ProcessState.SLOW and not step_us:
            if process.busy_until_us < NEVER_US:
                process.busy_until_us = self.now_us
            self.resume(process)
        elif process.state is ProcessState.RUNNING and step_us:
            process.state = ProcessState.SLOW

    def _hold(self, process: Process, handle: SimHandle) -> SimHandle | None:
        """Take a due callback of a process that is not simply running. Returns what to run now, mostly None."""
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
        if not process.step_us:  # it was busy for a while and is fast again
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
        """Run until `reached()` returns True; it is called after every callback. `within` is in seconds of virtual
        time."""
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
        """Run for that many seconds of virtual time."""
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
            raise RuntimeError("the simulated event loop is running already: a task must not drive the world")
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
        """No effect: generators end with their tasks."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """No effect: there is no default executor."""

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
        task = SimTask(self._numbers, coro, loop=self, name=named, context=context, **options)
        self._tasks.append(weakref.ref(task))
        return task

    def unfinished_tasks(self) -> list[SimTask[Any]]:
        """The unfinished tasks of all processes, oldest first."""
        unfinished = [(each, task) for each in self._tasks if (task := each()) is not None and not task.done()]
        self._tasks = [each for each, _ in unfinished]
        return [task for _, task in unfinished]

    def tasks_of(self, process: Process) -> list[SimTask[Any]]:
        """The unfinished tasks of a process, oldest first."""
        return [task for task in self.unfinished_tasks() if task.owner is process]

    # --- refusals ---

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> NoReturn:  # type: ignore[override]
        raise RuntimeError("a simulated world has no threads: make the work a coroutine, or call it directly")

    def _refuse_the_machine(self, *_: Any, **__: Any) -> NoReturn:
        raise RuntimeError(
            "a simulated world has no sockets, names, pipes, processes or signals of the machine: use tidelog's "
            "asynchronous clients, and replace other services by a coroutine of the test"
        )

    create_connection = create_datagram_endpoint = create_unix_connection = _refuse_the_machine
    create_server = create_unix_server = connect_accepted_socket = _refuse_the_machine
    getaddrinfo = getnameinfo = sock_connect = sock_accept = _refuse_the_machine
    connect_read_pipe = connect_write_pipe = add_reader = add_writer = _refuse_the_machine  # type: ignore[assignment]
    subprocess_exec = subprocess_shell = add_signal_handler = _refuse_the_machine  # type: ignore[assignment]

    # --- errors ---

    get_debug = staticmethod(bool)  # False, without a Python call: every future reads it

    def set_debug(self, enabled: bool) -> None:
        """No effect: there is no debug mode."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self._muted:
            return
        description = [str(context.get("message", "a callback failed"))]
        if (failed := context.get("exception")) is not None:
            description.append(f"{type(failed).__name__}: {failed}")
            description.append(_where(failed))
        if (subject := context.get("task") or context.get("future") or context.get("handle")) is not None:
            description.append(repr(subject)[:300])
        self._defects.append(" | ".join(part for part in description if part))

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    def raise_defects(self) -> None:
        """Raise the defects found since the last call."""
        if self._defects:
            raise Defect("\n".join(self._defects))

    def dispose(self) -> None:
        """End the world: dispose of every unfinished task silently, without running it further.

        A coroutine that awaits while it is being closed is closed again until it ends. The innermost one comes first:
        an outer one that ends would leave it behind. Tasks that are created meanwhile are disposed of as well.
        """
        self._muted = True
        disposed: set[SimTask[Any]] = set()  # keeps references: nothing else holds a task that has not started
        while unfinished := [task for task in self.unfinished_tasks() if task not in disposed]:
            disposed.update(unfinished)
            self._ready.clear()
            self._timers.clear()
            for task in unfinished:
                _dispose_of(task)
        self.close()


def once_each(items: Iterable[T], is_done: Callable[[T], bool]) -> Callable[[], bool]:
    """A condition for `run_until`: every item is done. It is called after every callback, and does not look again at
    items that were done: they stay so."""
    waiting = list(items)

    def are_done() -> bool:
        while waiting and is_done(waiting[-1]):
            waiting.pop()
        return not waiting

    return are_done


def _dispose_of(task: SimTask[Any]) -> None:
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    for coro in _innermost_first(task.get_coro()):
        for _ in range(100):
            try:
                task.context.copy().run(coro.close)
                break
            except (Exception, BaseExceptionGroup):  # noqa: BLE001 - errors during disposal do not count
                continue


def _innermost_first(coro: Any) -> list[Any]:
    """A coroutine and those that it awaits, each by the one before."""
    chain = [coro]
    while isinstance(awaited := getattr(chain[-1], "cr_await", None), CoroutineType):
        chain.append(awaited)
    return chain[::-1]


def _turn() -> None:
    """Mark the end of a slow process's callback: the next one may run."""


def _where(error: BaseException) -> str:
    """The innermost frames of an error, on one line."""
    frames = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        frames.append(f"{code.co_filename.rsplit('/', 2)[-1]}:{trace.tb_lineno} {code.co_name}")
        trace = trace.tb_next
    return " < ".join(reversed(frames[-6:]))
