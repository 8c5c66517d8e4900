"""The connections of a Python worker, kept between the tasks that it runs one after the other.

To connect takes longer than to read a small range. A transport is kept if its task ended well; Spark ends a worker that
has been idle for a minute, and its connections with it. What a task knows of the cluster is not kept: the next one may
have been planned with newer metadata.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from tidelog.client.connection import client_transport
from tidelog.spark.options.connection_options import ConnectionOptions

if TYPE_CHECKING:
    from tidelog.protocol.grpc_transport import GrpcTransport


class _Kept(threading.local):
    """What the last task of a thread has left, and the loop to which it belongs (worker_loop.py)."""

    loop: asyncio.AbstractEventLoop | None = None
    connection: ConnectionOptions | None = None
    transport: GrpcTransport | None = None


_KEPT: Final = _Kept()


@asynccontextmanager
async def worker_transport(connection: ConnectionOptions) -> AsyncGenerator[GrpcTransport, None]:
    """The transport that the last task of this thread has left, if it had the same options; else a new one. It is the
    caller's alone, and is closed if the block is left by an exception."""
    loop = asyncio.get_running_loop()
    transport = _taken(loop)
    if transport is not None and connection != _KEPT.connection:
        await transport.close()
        transport = None
    if transport is None:
        transport = client_transport(connection.tls, connection.sasl, connection.client_id)
    try:
        yield transport
    except BaseException:
        await transport.close()
        raise
    other = _taken(loop)  # of a task that ran meanwhile
    _KEPT.loop, _KEPT.connection, _KEPT.transport = loop, connection, transport
    if other is not None:
        await other.close()


def _taken(loop: asyncio.AbstractEventLoop) -> GrpcTransport | None:
    """What is kept for this loop; nothing is kept after that."""
    transport, _KEPT.transport = _KEPT.transport, None
    return transport if _KEPT.loop is loop else None
