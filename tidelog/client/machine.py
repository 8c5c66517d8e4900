"""The client's access to the system: randomness, threads, and the tasks that no TaskGroup owns.

Other client modules take these by constructor; only this module creates them.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import CancelledError
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from tidelog import forks
from tidelog.client.surroundings import SURROUNDINGS
from tidelog.errors import InvalidRequest, TidelogError

T = TypeVar("T")
Client = TypeVar("Client")
Arguments = ParamSpec("Arguments")

CLOSE_SECONDS_MAX: Final = 30
"""How long a synchronous client waits for its loop to end; every delivery has its outcome long before."""

END_SECONDS_MAX: Final = 1
"""How long calls of other threads may run after their client was closed; then they are cancelled."""


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs in this thread, None if there is none."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def real_rng() -> random.Random:
    """Return a random generator seeded by the operating system."""
    return random.Random()


def secure_rng() -> random.Random:
    """Return a random generator whose output cannot be predicted: for salts and nonces."""
    return random.SystemRandom()


async def run_beside(work: Callable[[], T]) -> T:
    """Run a computation of some milliseconds on a thread, beside the loop."""
    return await asyncio.get_running_loop().run_in_executor(None, work)


def start_root_task(work: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]:
    """Start the root task of a client, which owns all other tasks. The client waits for it."""
    return asyncio.create_task(work, name=name)


class LoopThread:
    """An event loop in its own thread, for synchronous clients."""

    def __init__(self, name: str) -> None:
        if SURROUNDINGS.get() is not None:  # it would wait in real time for nodes that are none
            raise InvalidRequest(
                f"a {name} needs a thread, which a simulated world has not: use the asynchronous client"
            )
        self._name = name
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._submitting = threading.Lock()
        self._stopping = False
        self._is_foreign = False
        """True in a forked child process: it has a copy of this object, but not the thread."""
        forks.watch(self)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine on the loop; return its result or raise its error. Ctrl-C cancels it.

        Raises InvalidRequest if the loop is stopped, before or during the call, and in the thread of the loop, which
        would wait for itself; UsedAfterFork in a forked child.
        """
        try:
            self.ensure_outside()
        except InvalidRequest:
            work.close()
            raise
        with self._submitting:
            if self._stopping:
                work.close()
                raise self._closed()
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise
        except CancelledError:
            if self._stopping:
                raise self._closed() from None
            raise

    def note_fork(self) -> None:
        """Called in a forked child (tidelog/forks.py), which has no thread: calls raise, and `stop` does nothing."""
        self._submitting = threading.Lock()  # another thread of the parent may have locked the old one
        self._is_foreign = self._stopping = True

    @property
    def is_running(self) -> bool:
        """Whether `run` still works."""
        return not self._stopping

    def ensure_outside(self) -> None:
        """Raise InvalidRequest in the thread of the loop."""
        if threading.current_thread() is self._thread:
            raise InvalidRequest(
                f"a callback in the thread of the {self._what} cannot wait for it: let another thread make the call"
            )

    def stop(self) -> None:
        """Wait for running calls, then stop the loop and the thread. Idempotent. Raises InvalidRequest in the thread of
        the loop."""
        self.ensure_outside()
        with self._submitting:
            if self._stopping:
                return
            self._stopping = True
            asyncio.run_coroutine_threadsafe(self._end(), self._loop)
        self._thread.join(CLOSE_SECONDS_MAX)
        if not self._thread.is_alive():
            self._loop.close()

    async def _end(self) -> None:
        """Cancel remaining tasks: a task dropped with the loop would leave its caller waiting forever."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            _, pending = await asyncio.wait(others, timeout=END_SECONDS_MAX)
            for task in pending:
                task.cancel()
            if pending:
                await asyncio.wait(pending, timeout=END_SECONDS_MAX)
        await asyncio.sleep(0)  # the results of tasks that have just ended must still reach their callers
        self._loop.stop()

    @property
    def _what(self) -> str:
        return self._name.removeprefix("tidelog ")

    def _closed(self) -> TidelogError:
        if self._is_foreign:
            return forks.foreign(self._what)
        return InvalidRequest(f"the {self._what} is closed: use it inside `with`")


def blocking(
    method: Callable[Concatenate[Client, Arguments], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, Arguments], T]:
    """Return the synchronous form of an asynchronous method, with its signature and docstring: a method of a class that
    has the asynchronous object in `_client` and its loop in `_thread`."""

    @wraps(method)
    def call(self: Any, /, *args: Any, **kwargs: Any) -> T:
        # An iterator runs in the thread of its caller: it may call the client, which would wait for itself on the loop.
        args = tuple(list(each) if isinstance(each, Iterator) else each for each in args)
        kwargs = {name: list(each) if isinstance(each, Iterator) else each for name, each in kwargs.items()}
        thread: LoopThread = self._thread
        return thread.run(method(self._client, *args, **kwargs))

    return call


def as_coroutine(
    method: Callable[Concatenate[Client, Arguments], T],
) -> Callable[Concatenate[Client, Arguments], Coroutine[Any, Any, T]]:
    """Return a method that is not asynchronous, and must run on the loop of its object, as one for `blocking`."""

    @wraps(method)
    async def call(client: Client, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> T:
        return method(client, *args, **kwargs)

    return call


def on_loop(
    method: Callable[Concatenate[Client, Arguments], T],
) -> Callable[Concatenate[Any, Arguments], T]:
    """Return the synchronous form of such a method."""
    return blocking(as_coroutine(method))
