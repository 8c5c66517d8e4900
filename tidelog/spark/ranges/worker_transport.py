"""The event loop and the connections of a Python worker, kept between the tasks that it runs one after the other.

To connect takes longer than to read a small range. A transport is kept if its task ended well; Spark ends a worker that
has been idle for a minute, and its connections with it. What a task knows of the cluster is not kept: the next one may
have been planned with newer metadata.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from tidelog.client.connection import client_transport
from tidelog.spark.options.connection_options import ConnectionOptions

if TYPE_CHECKING:
    from tidelog.protocol.grpc_transport import GrpcTransport

_LOOPS: Final = threading.local()
_KEPT: Final[dict[asyncio.AbstractEventLoop, tuple[ConnectionOptions, GrpcTransport]]] = {}
"""The transport of the last task by the loop of its thread: one entry, since Spark runs the tasks of a
worker in one thread. It stays until the process ends. A forked process has other loops."""


def worker_loop() -> asyncio.AbstractEventLoop:
    """The loop of this thread, for all tasks that it runs one after the other. It is not running, and is not closed: a
    task leaves nothing in it. A process that was forked has a new one.

    gRPC has one poller in a process, which stays bound to every loop that used it: a loop of each task's own would be
    closed by the next one, and every later event would log `Event loop is closed`.
    """
    pid: int | None = getattr(_LOOPS, "pid", None)
    if pid != os.getpid():
        _LOOPS.pid, _LOOPS.loop = os.getpid(), asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = _LOOPS.loop
    return loop


@asynccontextmanager
async def worker_transport(connection: ConnectionOptions) -> AsyncGenerator[GrpcTransport, None]:
    """The transport that the last task of this thread has left, if it had the same options; else a new one. It is the
    caller's alone, and is closed if the block is left by an exception."""
    loop = asyncio.get_running_loop()
    kept = _KEPT.pop(loop, None)
    if kept is not None and kept[0] != connection:
        await kept[1].close()
        kept = None
    transport = client_transport(connection.tls, connection.sasl, connection.client_id) if kept is None else kept[1]
    try:
        yield transport
    except BaseException:
        await transport.close()
        raise
    other = _KEPT.pop(loop, None)
    _KEPT[loop] = connection, transport
    if other is not None:  # of a task that ran meanwhile
        await other[1].close()


async def close_kept_transport() -> None:
    """Close the transport that the last task on this loop has left: the loop ends."""
    kept = _KEPT.pop(asyncio.get_running_loop(), None)
    if kept is not None:
        await kept[1].close()
