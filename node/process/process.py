"""A node as a process: builds everything that uses the machine (sockets, threads, clock, files) for `Node`.

Start: the listeners are bound first, so that their ports are known. Then the node is assembled and the listeners answer
(health: alive). Once the controller has unfenced the node, it is ready and prints one line on standard output:
`ready node=0 GRPC=127.0.0.1:9192 KAFKA=127.0.0.1:9092`.
Stop: SIGTERM or SIGINT moves the leaderships to other nodes, refuses new requests and closes the logs cleanly. A second
signal ends the process at once.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import gc
import logging
import os
import platform
import random
import resource
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from node import config as configuration
from node.boundary.boundary import Boundary
from node.config import ListenerConfig, NodeConfig
from node.listeners.grpc.connections import connections_to
from node.listeners.grpc.health import Health
from node.listeners.grpc.server import GrpcServer
from node.listeners.grpc.server_tls import ServerTls
from node.listeners.listener_certificates import ListenerCertificates
from node.observability import logs
from node.observability.metric_sources import BuildInfo
from node.observability.metrics import metrics_text
from node.observability.metrics_server import MetricsServer
from node.observability.stderr_lines import StderrLines
from node.process.console import NodeConsole
from node.process.node import SERVICES, Node
from node.process.refused_config import wants_json
from node.quotas.client_quotas import ClientQuotas
from node.quotas.open_calls import OpenCalls
from node.quotas.throttle import Quotas
from node.runtime.disk_times import DiskTimes, operation_of
from node.runtime.gc_watch import GcWatch
from node.runtime.histogram import Histogram
from node.runtime.loop_watch import LoopWatch
from node.runtime.process_usage import process_usage
from node.runtime.request_meter import RequestMeters
from node.runtime.slow_requests import SlowRequestLog
from node.runtime.thread_executor import ThreadExecutor
from node.runtime.work import run_in
from node.security.acl_authorizer import AclAuthorizer
from node.security.audit_file import AuditFile, write_to_log
from node.security.audit_log import AuditLog
from node.security.authorizer import Authorizer
from node.security.cluster_secret import node_user, read_by_all
from storage.files.file_system import Files
from storage.files.os_files import OsFiles
from tidelog import __version__
from tidelog.clock import Clock, MachineClock
from tidelog.errors import InvalidConfig, TidelogError
from tidelog.protocol.grpc_transport import GrpcTransport
from tidelog.protocol.sasl_client import SaslClient

if TYPE_CHECKING:
    from node.listeners.http.http_tls import HttpTls
    from node.listeners.kafka.kafka_server import KafkaServer

_log = logging.getLogger("node.process")

ANSWER_GRACE_MS: Final = 1_000
"""Time that unary calls in progress get to finish when the node stops."""

CERTIFICATES_MS: Final = 3_600_000
"""Interval of looking at the certificates of idle listeners."""

REPEATED_MS: Final = 5_000
"""Interval of looking for repeated log lines that have been counted for long enough."""

HELP_COLUMNS: Final = 100

EXIT_FAILED: Final = 1
EXIT_CONFIG: Final = 2
EXIT_AT_ONCE: Final = 130


def main(arguments: list[str] | None = None, files: Files | None = None, clock: Clock | None = None) -> int:
    """Run a node until it is stopped. files, clock: its disk and its clocks; None: those of the machine. Returns the
    exit code of the process."""
    options = _options(arguments)
    with ExitStack() as stack:
        try:
            config = _read_config(options.config)
        except InvalidConfig as error:
            if wants_json(_text_of(options.config), os.environ):
                logs.configure(style="json", level="info")
                _log.error("the node cannot run: %s", error.message)
            else:
                sys.stderr.write(f"tidelog: {error.message}\n")
            return EXIT_CONFIG
        stream = None
        if config.log_format == "json":
            stderr = StderrLines()
            stream = stderr.start()
            stack.callback(stderr.close)
        logs.configure(style=config.log_format, level=config.log_level, node_id=config.node_id, stream=stream)
        return _run_node(config, files, clock, until_stdin_ends=options.until_stdin_ends)


def _run_node(config: NodeConfig, files: Files | None, clock: Clock | None, *, until_stdin_ends: bool) -> int:
    """Run a node until it is stopped. Returns the exit code of the process."""
    if config.exposure:
        _log.warning("insecure, as allow.insecure permits: %s", config.exposure)
    if config.unrestricted:
        _log.warning("no permissions: %s", config.unrestricted)
    keys = (listener.tls.key_file for listener in config.listeners if listener.tls is not None)
    for file in read_by_all([config.sasl.secret_file, *keys]):
        what = "cluster.secret.file" if file == config.sasl.secret_file else "ssl.key.file"
        _log.warning("every user of this machine can read %s, %s: chmod 600", what, file)
    _tune_memory()
    _raise_file_limit()
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_run(config, files, clock, until_stdin_ends=until_stdin_ends))
    except TidelogError as error:
        _log.error("the node cannot run: %s", error.message)
        return EXIT_CONFIG if isinstance(error, InvalidConfig) else EXIT_FAILED
    except Exception:  # noqa: BLE001 (a defect: one log line with its traceback)
        _log.critical("the node ends because of a defect; its next start recovers the logs", exc_info=True)
        return EXIT_FAILED
    return 0


async def _run(config: NodeConfig, files: Files | None, clock: Clock | None, *, until_stdin_ends: bool) -> None:
    await NodeProcess(config, files, clock, until_stdin_ends=until_stdin_ends).run()


class NodeProcess:
    """One incarnation of a node on this machine. Created on a running loop, as its executors are."""

    def __init__(
        self,
        config: NodeConfig,
        files: Files | None = None,
        clock: Clock | None = None,
        *,
        until_stdin_ends: bool = False,
    ) -> None:
        """files, clock: None: those of the machine."""
        self._config, self._files = config, files or OsFiles()
        self._until_stdin_ends = until_stdin_ends
        self._clock: Clock = clock or MachineClock()
        slow = SlowRequestLog(config.slow_request_ms, time.monotonic_ns)
        self._disk_times = DiskTimes()
        self._executor_times: dict[str, Histogram] = {}
        self._loop_watch, self._gc_watch = LoopWatch(time.monotonic), GcWatch(time.monotonic)
        self._executors: list[ThreadExecutor] = []
        self._defect: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        self._audit_file = self._new_audit_file() if config.audit.file else None
        write = write_to_log if self._audit_file is None else self._audit_file.write
        self._audit = AuditLog(write, clock=self._clock, node_id=config.node_id)
        self._authorizer = AclAuthorizer(config.authorizer, self._audit) if config.authorizer.enabled else None
        limits = config.quotas
        self._boundary = Boundary(
            RequestMeters(time.monotonic_ns, slow),
            self._authorizer or Authorizer(),
            audit=self._audit,
            quotas=Quotas(ClientQuotas(self._clock.monotonic_ms, samples=limits.samples, sample_ms=limits.sample_ms)),
            calls=OpenCalls(per_ip=limits.calls_per_ip, per_principal=limits.calls_per_principal),
        )
        self._metrics_reader: ThreadExecutor | None = None
        """Reads what takes time and is no file of the node; None without metrics."""
        self._servers: list[GrpcServer | KafkaServer] = []
        self._console: NodeConsole | None = None
        self._tls: list[ListenerCertificates] = []
        self._health = Health(f"tidelog.v1.{service}" for service in SERVICES)
        self._announcement = ""
        """Printed once, when the node becomes ready for the first time."""

    async def run(self) -> None:
        """Serve until stopped, then stop gracefully. Raises the error that makes running impossible."""
        async with AsyncExitStack() as stack:
            rng = random.SystemRandom()
            user = node_user(self._config.sasl.secret_file) if self._config.sasl.secret_file else None
            transport = GrpcTransport(
                message_bytes_max=self._config.message_bytes_max,
                tls=self._config.node_tls,
                sasl=None if user is None else SaslClient(user, rng),
            )
            stack.push_async_callback(transport.close)
            stack.callback(self._close_executors)
            await stack.enter_async_context(self._auditing())
            await stack.enter_async_context(_running(self._count_repeated_lines()))
            config = self._bind()
            self._announcement = _announcement(config)
            stack.push_async_callback(self._stop_serving)
            node = Node(
                config,
                clock=self._clock,
                rng=rng,
                files=self._files,
                executors=self._executor,
                transport=transport,
                boot_id=_boot_id(),
                before_close=self._stop_serving,
                ready_changed=self._ready_changed,
                caught_up=self._health.caught_up,
                image_changed=None if self._authorizer is None else self._authorizer.follow,
                quotas=self._boundary.quotas,
                audit=self._audit,
                cluster_secret="" if user is None else user.read_password(),
                now_ns=time.monotonic_ns,
                pause_ms=lambda ms: time.sleep(ms / 1_000),
            )
            await self._serve(node, config, transport, stack)
            if self._tls:
                await stack.enter_async_context(_running(self._watch_certificates()))
            self._listen_to_signals(node)
            await self._run_unless_defect(node)
            _log.info("stopped")

    async def _run_unless_defect(self, node: Node) -> None:
        """End the node if a callback fails by a defect, as a task that fails does: the effect of the callback would be
        awaited forever. The next start recovers the logs."""
        running = asyncio.ensure_future(node.run())
        await asyncio.wait((running, self._defect), return_when=asyncio.FIRST_COMPLETED)
        if self._defect.done() and not running.done():
            running.cancel()
            await asyncio.wait((running,))
            raise self._defect.result()
        await running

    def _new_audit_file(self) -> AuditFile:
        audit, writer = self._config.audit, self._executor("audit")
        return AuditFile(audit.file, OsFiles(), writer, bytes_max=audit.bytes_max, files_max=audit.files_max)

    @asynccontextmanager
    async def _auditing(self) -> AsyncIterator[None]:
        """Make sure that the file of the audit log, if it has one, can be written, and report regularly what was left
        out."""
        file = self._audit_file
        if file is not None:
            await file.open()
        try:
            async with _running(self._audit.run()):
                yield
        finally:
            self._audit.close()
            if file is not None:
                await file.settle()

    async def _count_repeated_lines(self) -> None:
        """Write how often log lines were repeated, also if no other line follows."""
        while True:
            await self._clock.sleep_ms(REPEATED_MS)
            logs.write_repeated()

    async def _watch_certificates(self) -> None:
        """Log regularly which certificates expire soon: a listener reads its files only when somebody connects."""
        reader = self._executor("certificates")
        while True:
            await self._clock.sleep_ms(CERTIFICATES_MS)
            for tls in self._tls:
                await run_in(reader, tls.look)

    def _bind(self) -> NodeConfig:
        """Bind the listeners. Returns the configuration with the bound ports."""
        taken = []
        connections_max = connections_of(self._config, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        for listener in self._config.listeners:
            server = self._server(listener, connections_max)
            self._servers.append(server)
            bound = server.bind(listener.bind)
            taken.append(replace(listener, bind=bound, advertised=listener.advertised or bound))
        return replace(self._config, listeners=tuple(taken))

    def _server(self, listener: ListenerConfig, connections_max: int) -> GrpcServer | KafkaServer:
        message_bytes_max = self._config.message_bytes_max
        # One message must always fit.
        incomplete_bytes_max = max(self._config.memory_bytes // len(self._config.listeners), message_bytes_max)
        if listener.protocol.is_kafka:
            # A node without such a listener does not load Kafka's messages: 3 MiB.
            from node.listeners.kafka.kafka_server import KafkaServer
            from node.listeners.kafka.kafka_tls import KafkaTls

            kafka_tls = None if listener.tls is None else KafkaTls(listener.name, listener.tls, self._clock)
            if kafka_tls is not None:
                self._tls.append(kafka_tls)
            return KafkaServer(
                listener.name,
                boundary=self._boundary,
                frame_bytes_max=message_bytes_max,
                memory_bytes_max=incomplete_bytes_max,
                connections_max=connections_max,
                idle_ms_max=self._config.idle_ms_max,
                tls=kafka_tls,
            )
        tls = None if listener.tls is None else ServerTls(listener.name, listener.tls, self._clock)
        if tls is not None:
            self._tls.append(tls)
        return GrpcServer(
            listener.name,
            boundary=self._boundary,
            message_bytes_max=message_bytes_max,
            for_nodes=listener.for_nodes,
            tls=tls,
            connections_max=connections_max,
            idle_ms_max=self._config.idle_ms_max,
            incomplete_bytes_max=incomplete_bytes_max,
        )

    async def _serve(self, node: Node, config: NodeConfig, transport: GrpcTransport, stack: AsyncExitStack) -> None:
        self._health.alive()
        for server in self._servers:
            if isinstance(server, GrpcServer):
                server.serve(node.services, node.sasl)
                server.serve_health(self._health.servicer)
            else:
                server.serve(node.services, node.sasl, node.feature_level)
            await server.start()
        if config.metrics_bind is not None:
            self._metrics_reader = self._executor("metrics")
            stack.enter_context(_measured(self._loop_watch, self._gc_watch))
            tls = self._http_tls(config)
            if config.http.has_console:
                self._console = self._new_console(node, config, transport, tls)
                await stack.enter_async_context(_running(self._console.run()))
            metrics_server = MetricsServer(
                lambda: self._scraped(node),
                node.why_not_ready,
                self._console,
                tls=None if tls is None else tls.context,
            )
            address = await metrics_server.start(config.metrics_bind)
            stack.push_async_callback(metrics_server.stop)
            _log.info("serving metrics", extra={"address": address})

    def _http_tls(self, config: NodeConfig) -> HttpTls | None:
        """TLS of the HTTP port; None for plain HTTP. Not in `_tls`: its certificate is that of the listener, which is
        there, and a metric that is there twice makes Prometheus refuse the whole scrape."""
        files = config.http.tls({each.name: each.tls for each in config.listeners})
        if files is None:
            return None
        from node.listeners.http.http_tls import HttpTls

        return HttpTls(config.http.tls_listener, files, self._clock)

    def _new_console(
        self, node: Node, config: NodeConfig, transport: GrpcTransport, tls: HttpTls | None
    ) -> NodeConsole:
        return NodeConsole(
            config,
            node,
            boundary=self._boundary,
            between_nodes=transport,
            clock=self._clock,
            rng=random.SystemRandom(),
            host_name=socket.gethostname(),
            tls=tls,
        )

    async def _ready_changed(self, is_ready: bool) -> None:
        self._health.ready(is_ready=is_ready)
        if is_ready and self._announcement:
            _settle_memory()
            sys.stdout.write(self._announcement)
            sys.stdout.flush()
            self._announcement = ""

    async def _scraped(self, node: Node) -> bytes:
        connections = await self._connections()
        now = node.metric_sources(await node.groups())
        sources = replace(
            now,
            build=BuildInfo(__version__, platform.python_version(), type(asyncio.get_running_loop()).__module__),
            loop=self._loop_watch,
            gc=self._gc_watch,
            process=process_usage(),
            disks=(*now.disks, self._disk_times),
            executors=self._executor_times,
            connections=connections,
            requests=self._boundary.meters,
            calls=self._boundary.calls,
            audit=self._audit,
            certificates=[each.expiry for each in self._tls],
        )
        return await metrics_text(sources, lambda: self._clock.sleep_ms(0))

    async def _connections(self) -> dict[str, int]:
        """The open connections by listener. gRPC does not tell them: the system does, for a file of some 150 bytes for
        each connection of the machine."""
        found = {each.listener: each.connections for each in self._servers if not isinstance(each, GrpcServer)}
        ports = {each.listener: each.port for each in self._servers if isinstance(each, GrpcServer)}
        assert self._metrics_reader is not None, "metrics are served"
        return found | await run_in(self._metrics_reader, lambda: connections_to(ports))

    async def _stop_serving(self) -> None:
        if self._console is not None:
            self._console.close()
        servers, self._servers = self._servers, []
        for server in servers:
            await server.stop(ANSWER_GRACE_MS)

    def _executor(self, name: str, workers: int = 1) -> ThreadExecutor:
        """A new executor with this name, for example the writer of a log directory."""
        work = operation_of(name, self._config.log_directories)
        times = self._disk_times.of(*work) if work else self._executor_times.setdefault(name, Histogram())
        executor = ThreadExecutor(name, workers=workers, observe=times.observe, on_defect=self._defect_found)
        self._executors.append(executor)
        return executor

    def _defect_found(self, defect: Exception) -> None:
        if not self._defect.done():
            self._defect.set_result(defect)

    def _close_executors(self) -> None:
        for executor in self._executors:
            executor.close()

    def _listen_to_signals(self, node: Node) -> None:
        loop = asyncio.get_running_loop()
        stopping = False

        def stop(why: str) -> None:
            nonlocal stopping
            if stopping:
                _log.warning("second request to stop (%s): the process ends at once", why)
                os._exit(EXIT_AT_ONCE)
            stopping = True
            _log.info("stop requested (%s): the node drains and closes its logs", why)
            node.stop()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop, number.name)
        if self._until_stdin_ends:
            loop.add_reader(sys.stdin.fileno(), self._stdin_readable, loop, stop)

    @staticmethod
    def _stdin_readable(loop: asyncio.AbstractEventLoop, stop: Callable[[str], None]) -> None:
        if not os.read(sys.stdin.fileno(), 4096):
            loop.remove_reader(sys.stdin.fileno())
            stop("standard input ended")


@contextmanager
def _measured(loop_watch: LoopWatch, gc_watch: GcWatch) -> Iterator[None]:
    """Measure the event loop and the garbage collector until the block ends."""
    loop_watch.start()
    gc_watch.start()
    try:
        yield
    finally:
        gc_watch.stop()
        loop_watch.stop()


@asynccontextmanager
async def _running(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run this until the block ends."""
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait((task,))


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tidelog-node",
        description="Run one node of a Tidelog cluster.",
        # To learn the width of the terminal it would load shutil, with bz2 and lzma: 0.4 MiB.
        formatter_class=partial(argparse.HelpFormatter, width=HELP_COLUMNS),
    )
    parser.add_argument(
        "--config", type=Path, required=True, metavar="FILE", help="TOML; TIDELOG_* variables override it"
    )
    parser.add_argument(
        "--until-stdin-ends", action="store_true", help="stop when standard input ends, as when the parent ends"
    )
    return parser.parse_args(arguments)


def _text_of(path: Path) -> str:
    """The text of a configuration that may not be readable; then empty."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _read_config(path: Path) -> NodeConfig:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"{path}: cannot be read ({error}). Name a TOML file with --config.") from None
    return configuration.parse(
        text, os.environ, source=str(path), host_name=socket.gethostname(), memory_bytes=_memory_for_records()
    )


def _announcement(config: NodeConfig) -> str:
    addresses = " ".join(f"{listener.name}={listener.advertised or listener.bind}" for listener in config.listeners)
    return f"ready node={config.node_id} {addresses}\n"


def _boot_id() -> bytes:
    """The id of the machine's present boot. A different one means that unsynced pages may be gone. Raises
    InvalidConfig."""
    try:
        return UUID(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()).bytes
    except (OSError, ValueError) as error:
        raise InvalidConfig(
            f"/proc/sys/kernel/random/boot_id: {error}. A node must know whether its machine was rebooted: run it on "
            "Linux with /proc mounted."
        ) from None


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop if it is installed: a message on a stream costs a third less (docs/performance.md)."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def _raise_file_limit() -> None:
    """Raise the limit of open files to the maximum. Logs and connections need files, and a log that cannot open a file
    takes its log directory offline. Many systems start a process with 1,024 and allow far more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def connections_of(config: NodeConfig, files: int) -> int:
    """The limit of connections of each listener. Half of the files that the process may open remain for logs: a log
    that cannot open a file takes its log directory offline. files: the process's limit of open files."""
    if files == resource.RLIM_INFINITY:
        return config.connections_max
    return min(config.connections_max, files // (2 * len(config.listeners)))


_CGROUP_LIMITS: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Memory limit of the container (cgroup v2, v1)."""
_MEMORY_BYTES_MIN: Final = 32 << 20


def _memory_for_records() -> int:
    """The default of `memory.max.bytes`: a quarter of the memory of the container or of the machine, within bounds. The
    node itself, memory that malloc keeps, and the page cache of a container need the rest."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in _CGROUP_LIMITS:
        with suppress(OSError, ValueError):  # another version of cgroups, or "max"
            limits.append(int(Path(path).read_text(encoding="ascii")))
    return max(_MEMORY_BYTES_MIN, min(min(limits) // 4, configuration.MEMORY_BYTES))


_M_MMAP_THRESHOLD: Final = -3
_M_TRIM_THRESHOLD: Final = -1
_M_ARENA_MAX: Final = -8


def _tune_memory() -> None:
    """Let malloc keep freed buffers of some hundred KiB, and use one arena (mallopt(3)). With an arena for each of
    gRPC's threads a node under 40 producers uses 230 MiB instead of 160 MiB."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return  # not glibc
    mallopt(_M_MMAP_THRESHOLD, 16 << 20)
    mallopt(_M_TRIM_THRESHOLD, 64 << 20)
    mallopt(_M_ARENA_MAX, 1)


def _settle_memory() -> None:
    """Exclude the objects of a ready node from garbage collection: they live as long as the process. Return to the
    system what the start has freed: `_tune_memory` lets malloc keep all of it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    with suppress(OSError, AttributeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)
