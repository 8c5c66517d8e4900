"""Forks of a process that has clients: calls in the child that cannot work raise an error at once.

A fork copies one thread. A client of the parent has no loop in the child. gRPC has no threads there, and gRPC with
asyncio cannot start them again, with its fork handlers or without: calls of the child's own clients would have no
answer. gRPC works in the child if it had ended in the parent before the fork: it ends with its last channel, and its
threads some milliseconds later. `before` therefore waits for threads that are ending; the child then knows.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol
from weakref import WeakSet

if TYPE_CHECKING:
    from tidelog.errors import UsedAfterFork

ENDING_SECONDS_MAX: Final = 2.0
"""How long a fork waits for gRPC's threads to end. They need some 10 ms after the last channel, longer on a busy
machine."""

_TIMER: Final = "grpc_global_tim"
"""Name of a thread that runs as long as gRPC does, as Linux has it: no longer than the last channel."""
_ENDING: Final = frozenset({"event_engine", "grpc_shutdown", "lifeguard"})
"""Names of threads that may end after it. A child that is forked meanwhile may be aborted, or wait forever."""
_POLLER: Final = "(_poll_wrapper)"
"""End of the name of the Python thread that waits for the events of gRPC with asyncio. It runs while a channel, or a
call of one, exists as a Python object."""


class Forkable(Protocol):
    """Belongs to the process that made it."""

    def note_fork(self) -> None:
        """Called in the child, where it must not be used any more."""


class _Forks:
    """The state of this process."""

    def __init__(self) -> None:
        self.owned: WeakSet[Forkable] = WeakSet()
        self.parent: int | None = None
        """The process in which gRPC ran when this one was forked from it; None: gRPC works here."""
        self.connected: WeakSet[object] = WeakSet()
        """Transports with channels that are not closed."""
        self.has_closed_channels = False
        """Whether channels were closed since the last fork."""
        self.grpc_runs = False
        self.pid = os.getpid()

    def before(self) -> None:
        """In the parent: find out whether gRPC runs."""
        self.grpc_runs = self.parent is None and "grpc" in sys.modules and self._runs_after_a_wait()

    def _runs_after_a_wait(self) -> bool:
        may_end, self.has_closed_channels = self.has_closed_channels and not self.connected, False
        if may_end and _has_poller():  # tracebacks of cancelled tasks keep calls, and those their channels
            gc.collect()
        has_handlers = os.environ.get("GRPC_ENABLE_FORK_SUPPORT", "").lower() in ("1", "true", "yes", "on")
        until = time.monotonic() + ENDING_SECONDS_MAX
        while True:
            has_poller = _has_poller()
            # Channels without asyncio: gRPC's handlers, if enabled, restart its threads in the child.
            threads = set() if has_handlers else _native_threads()
            if not has_poller and not threads:
                return False
            if ((has_poller or _TIMER in threads) and not may_end) or time.monotonic() >= until:
                return True  # a client is open, or another library has a channel
            time.sleep(0.001)

    def in_child(self) -> None:
        """In the child: make the clients of the parent unusable."""
        if self.grpc_runs:
            self.parent = self.pid
        self.pid = os.getpid()
        for owned in list(self.owned):
            owned.note_fork()
        self.owned.clear()


_forks: Final = _Forks()


def register() -> None:
    """Watch the forks of this process; called once, before gRPC is used."""
    os.register_at_fork(before=_forks.before, after_in_child=_forks.in_child)


def watch(owned: Forkable) -> None:
    """Call `note_fork` in every forked child."""
    _forks.owned.add(owned)


def note_connected(transport: object) -> None:
    """The transport has a channel."""
    _forks.connected.add(transport)


def note_closed(transport: object) -> None:
    """The transport closed its channels; their objects may wait for Python's garbage collection."""
    _forks.connected.discard(transport)
    _forks.has_closed_channels = True


def require_grpc() -> None:
    """Raise UsedAfterFork if gRPC cannot work in this process."""
    if _forks.parent is not None:
        from tidelog.errors import UsedAfterFork  # `import tidelog` needs none of what the errors import

        raise UsedAfterFork(
            f"process {os.getpid()} was forked from process {_forks.parent}, in which gRPC was running (a client was "
            "open): no call would be answered here. Start processes with 'spawn' or 'forkserver' "
            '(multiprocessing.get_context("spawn")), or fork before the first client is opened or after the last one '
            "is closed"
        )


def foreign(what: str) -> UsedAfterFork:
    """The error of a client of the parent that is used in the child."""
    from tidelog.errors import UsedAfterFork

    return UsedAfterFork(
        f"this {what} belongs to the process that made it, from which process {os.getpid()} was forked: create one in "
        "each process, after the fork"
    )


def _has_poller() -> bool:
    return any(thread.name.endswith(_POLLER) for thread in threading.enumerate())


def _native_threads() -> set[str]:
    """The names of gRPC's threads; none where the system does not list threads."""
    try:
        tasks = [*Path("/proc/self/task").iterdir()]
    except OSError:
        return set()
    return {name for task in tasks if (name := _name_of(task)) == _TIMER or name in _ENDING}


def _name_of(task: Path) -> str:
    try:
        return (task / "comm").read_text(encoding="utf-8").strip()
    except OSError:  # it has ended
        return ""
