"""The connections of a Python worker, kept between the tasks that it runs one after the other.

To connect takes longer than to read a small range. A transport is kept if its task ended well; Spark ends a worker that
has been idle for a minute, and its connections with it. What a task knows of the cluster is not kept: the next one may
have been planned with newer metadata.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from tidelog.client.connection import client_transport
from tidelog.spark.options.connection_options import ConnectionOptions

if TYPE_CHECKING:
    from tidelog.protocol.grpc_transport import GrpcTransport

_KEPT: Final[dict[asyncio.AbstractEventLoop, tuple[ConnectionOptions, GrpcTransport]]] = {}
"""The transport of the last task by the loop of its thread (worker_loop.py): one entry, since Spark runs the tasks of a
worker in one thread. It stays until the process ends. A forked process has other loops."""


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
