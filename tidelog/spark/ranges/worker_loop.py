"""The event loop of a thread of a Python worker, for all tasks that it runs one after the other.

gRPC has one poller in a process, which stays bound to every loop that used it: a loop of each task's own would be
closed by the next one, and every later event would log `Event loop is closed`. Spark runs many tasks in one worker.
"""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Final

_LOOPS: Final = threading.local()


def worker_loop() -> asyncio.AbstractEventLoop:
    """The loop of this thread. It is not running, and is not closed: who uses it leaves no task in it. A process that
    was forked has a new one."""
    pid: int | None = getattr(_LOOPS, "pid", None)
    if pid != os.getpid():
        _LOOPS.pid, _LOOPS.loop = os.getpid(), asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = _LOOPS.loop
    return loop
