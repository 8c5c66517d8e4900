"""Lifecycle of a client: one root task owns all other tasks.

Invariants: after `close` no task of the client runs; a defect in a task ends the client and is raised by its next call.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from random import Random
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final, Self, TypedDict

from tidelog import forks
from tidelog.client.cluster import Cluster, parse_bootstrap
from tidelog.client.kafka_options import unknown_option
from tidelog.client.machine import real_rng, running_loop, secure_rng, start_root_task
from tidelog.client.options import checked_client_id
from tidelog.client.surroundings import SURROUNDINGS
from tidelog.clock import Clock, MachineClock
from tidelog.errors import InvalidRequest, TidelogError
from tidelog.protocol.network import Transport
from tidelog.security.sasl_user import Sasl
from tidelog.security.tls_files import Tls

if TYPE_CHECKING:
    from tidelog.protocol.grpc_transport import GrpcTransport

TLS_FAILURES: Final = "tidelog.client.tls"
"""The logger that warns of failed TLS connections: calls are repeated, and raise the cause when their time is over."""


def client_transport(tls: Tls | None, sasl: Sasl | None, client_id: str) -> GrpcTransport:
    """The transport of a client. It connects at its first use. Raises InvalidConfig for unusable TLS files."""
    from tidelog.protocol.grpc_transport import GrpcTransport
    from tidelog.protocol.sasl_client import SaslClient

    return GrpcTransport(
        tls=tls,
        sasl=None if sasl is None else SaslClient(sasl, secure_rng()),
        client_id=client_id,
        tls_failures=logging.getLogger(TLS_FAILURES),
    )


class ClientOptions(TypedDict, total=False):
    """The options that all clients share."""

    tls: Tls | None
    """The files for TLS; None: plain text."""
    sasl: Sasl | None
    """The user that the client authenticates as; None: the client does not authenticate."""
    client_id: str
    """The client's name in quotas and in the nodes' logs."""
    transport: Transport | None
    """For tests, as `clock` and `rng`; None: that of the context (surroundings.py), or else of the system."""
    clock: Clock | None
    rng: Random | None


class Service:
    """Base of Producer, Consumer and Admin: cluster view, task group, start and stop."""

    def __init__(
        self,
        bootstrap: str | list[str] | tuple[str, ...],
        *,
        tls: Tls | None = None,
        sasl: Sasl | None = None,
        client_id: str = "",
        transport: Transport | None = None,
        clock: Clock | None = None,
        rng: Random | None = None,
        **unknown: object,
    ) -> None:
        for name in unknown:
            raise unknown_option(type(self), name, ClientOptions.__annotations__)
        if tls is not None and not isinstance(tls, Tls):
            raise TypeError(f"tls must be a tidelog.Tls or None, not {type(tls).__name__}: {tls!r}")
        if (here := SURROUNDINGS.get()) is not None:
            transport, clock, rng = transport or here.transport, clock or here.clock, rng or here.rng
        self._client_id = checked_client_id(client_id)
        self._bootstrap = parse_bootstrap(bootstrap)
        self._tls, self._sasl, self._transport = tls, sasl, transport
        self._closes_transport = transport is None
        """A transport that was handed in may serve other clients: its owner closes it."""
        self._clock: Clock = clock or MachineClock()
        self._rng = rng or real_rng()
        self._root: asyncio.Task[None] | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self._cluster_or_none: Cluster | None = None
        self._defect: BaseException | None = None
        self._closed = False
        self._is_foreign = False
        """True in a forked child process: it has a copy of this object, but none of its tasks."""
        self._loop: asyncio.AbstractEventLoop | None = None
        """The event loop in which the client was started, and in which alone it may be used; None before."""
        self._thread_id = 0
        """The thread of this loop: for a check at each record. Before Python 3.12 to ask for the running loop is a call
        of the system."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def _what(self) -> str:
        """The client's kind in error messages."""
        return type(self).__name__.lower()

    @property
    def _cluster(self) -> Cluster:
        if self._cluster_or_none is None or self._closed:
            raise self._unusable()
        self._ensure_here()
        return self._cluster_or_none

    def _ensure_here(self) -> None:
        """Raise InvalidRequest outside of the client's event loop, UsedAfterFork in a forked child.

        Futures of another loop do not wake it: a call from there would wait for an answer that has arrived, and two
        threads would change the queues at the same time.
        """
        if self._is_foreign:
            raise self._unusable()
        if self._loop is not None and running_loop() is not self._loop:
            raise InvalidRequest(
                f"the {self._what} belongs to the event loop in which it was started, and was called outside of it: "
                "call it there (from other threads with asyncio.run_coroutine_threadsafe), create one in each loop, or "
                f"use tidelog.sync.{type(self).__name__}, which any thread may call"
            )

    def _unusable(self) -> TidelogError:
        if self._defect is not None:
            error = InvalidRequest(f"the {self._what} failed by a defect: {self._defect!r}; create a new one")
            error.__cause__ = self._defect
            return error
        if self._is_foreign:
            return forks.foreign(self._what)
        state = "closed" if self._closed else "not started"
        return InvalidRequest(f"the {self._what} is {state}: use it inside `async with`")

    async def start(self) -> None:
        """Start the background tasks; called by `async with`. Nothing is sent over the network yet."""
        if self._root is not None or self._closed:
            raise InvalidRequest(f"the {self._what} was already started: create a new one")
        transport = self._transport
        if transport is None:
            transport = self._transport = client_transport(self._tls, self._sasl, self._client_id)
        forks.watch(self)
        self._loop, self._thread_id = asyncio.get_running_loop(), get_ident()
        cluster = self._cluster_or_none = Cluster(self._bootstrap, transport, self._clock, self._rng)
        started = asyncio.Event()
        self._root = start_root_task(self._run(cluster, started), name=f"tidelog {self._what}")
        await started.wait()

    def note_fork(self) -> None:
        """Called in a forked child (tidelog/forks.py): from now on every call raises, and `close` does nothing."""
        self._is_foreign = self._closed = True
        self._tasks = None

    def _can_close(self) -> bool:
        """Whether there is something that `close` could end: not in a forked child, nor after the client's loop was
        closed. Raises InvalidRequest outside of the client's event loop."""
        if self._is_foreign or (self._loop is not None and self._loop.is_closed()):
            self._closed = True
            return False
        self._ensure_here()
        return True

    async def close(self) -> None:
        """Stop all background tasks and close the connections, except those of a transport that was handed in.
        Idempotent."""
        if not self._can_close():
            return
        self._closed = True
        root, self._root = self._root, None
        if root is None:
            return
        root.cancel()
        await asyncio.wait([root])
        if self._transport is not None and self._closes_transport:
            await self._transport.close()

    async def _run(self, cluster: Cluster, started: asyncio.Event) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                tasks.create_task(cluster.run(), name="metadata")
                for name, work in self._background().items():
                    tasks.create_task(work, name=name)
                started.set()
                await asyncio.get_running_loop().create_future()  # until cancelled
        except Exception as defect:  # noqa: BLE001 - any defect is reported to the client's users
            # While the client closes, a task that an answer wakes may fail because the client is closed: no defect.
            if not self._closed:
                self._defect = defect
                self._closed = True
                self._on_defect()
        finally:
            self._tasks = None
            self._closed = True
            cluster.end(self._unusable())
            self._on_end()

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Start a task of the client. Raises InvalidRequest once the client has ended."""
        if self._tasks is None:
            work.close()
            raise self._unusable()
        try:
            self._tasks.create_task(work, name=name)
        except RuntimeError:  # the task group is ending, or the event loop is closed
            work.close()

    def _background(self) -> dict[str, Coroutine[Any, Any, None]]:
        """Return the tasks that run until the client ends."""
        return {}

    def _on_defect(self) -> None:
        """Notify all waiting callers of the defect in `_defect`."""

    def _on_end(self) -> None:
        """Called after the background tasks have ended: by `close`, by a defect, or with the event loop."""
