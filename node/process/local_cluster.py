"""Several nodes as processes on the loopback interface: for `tidelog up`, the demo, the bench and the tests.

Each node has a directory `DIRECTORY/node-N` with its configuration, its data and its log output. The configuration
keeps the addresses: a cluster that is started again in the same directory has the same addresses and data.

Invariants: no node outlives the process that started it: a node stops when its standard input ends. A wait fails at
once with the last lines of a node's log if that node has ended by itself. No node is started on an address that is in
use, so that no other cluster is mistaken for this one.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import grpc

from node.config import GRPC_LISTENER
from node.listener_settings import PROTOCOLS
from node.listeners.grpc.health import READY
from node.process.free_ports import free_ports, keep_ports
from node.process.probe import ask
from tidelog.errors import ConnectionFailed, NotController, RequestTimedOut, TidelogError, TopicExists
from tidelog.protocol import methods, status, wire
from tidelog.protocol.grpc_transport import blocking_channel
from tidelog.protocol.rpc import Method
from tidelog.protocol.v1 import admin_pb2, data_pb2
from tidelog.security.tls_files import Tls
from tidelog.types import Endpoint
from tidelog.values import dataclass

HOST: Final = "127.0.0.1"

GRPC_ABOVE: Final = 100
"""How much higher the port of a listener GRPC is than that of the listener KAFKA, if ports are chosen."""
METRICS_ABOVE: Final = 200
"""The same for the port of the metrics."""
STORE_FOLDER: Final = "object-store"
"""In the directory of a cluster: the object store of its remote tier, if it has one."""

_KAFKA: Final = "KAFKA"
_INNER: Final = "INNER"
_METRICS: Final = "metrics.listener"
_BETWEEN: Final = "inter.broker.listener.name"
_STORE_URL: Final = "remote.log.storage.url"

_GENERATED: Final = """\
# Written again at each start of this cluster (tidelog up): changes in this file are lost.
# Settings of yours: environment variables of that command, such as TIDELOG_LOG_RETENTION_MS=3600000.
# They count for all of its nodes, at each start that has them (docs/configuration.md).
"""
"""Above each configuration."""

_POLL_S: Final = 0.05
_CREATE_S: Final = 20.0
"""For another controller to take over, on a busy machine."""
_SHORT_RUN_S: Final = 10.0
"""A node that ends this soon after a restart is not restarted again."""
_CALL_S: Final = 2.0


class ClusterFailed(Exception):
    """A node that should run has ended, or a condition was not reached in time."""


@dataclass(slots=True)
class LocalNode:
    """One node: its directory and, while it runs, its process."""

    node_id: int
    directory: Path
    address: Endpoint
    metrics: Endpoint
    inner: Endpoint | None = None
    """The address of the listener between nodes, if that is not the listener for clients."""
    kafka: Endpoint | None = None
    """The address of the listener for clients of Kafka, if there is one."""
    between: Endpoint | None = None
    """The address by which other nodes reach `inner`, if something stands between."""
    is_out: bool = False
    """It runs and need not answer, since it is paused or cut off: it is no part of a healthy cluster."""
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    wrapper: tuple[str, ...] = ()
    """A command that is prefixed to the command of the node (`nice`, `unshare ...`)."""

    @property
    def listeners(self) -> dict[str, Endpoint]:
        """The addresses of its listeners, by name."""
        named = {GRPC_LISTENER: self.address, _INNER: self.inner, _KAFKA: self.kafka}
        return {name: address for name, address in named.items() if address is not None}

    @property
    def bound(self) -> tuple[Endpoint, ...]:
        """All addresses at which it listens."""
        return (*self.listeners.values(), self.metrics)

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def is_expected(self) -> bool:
        """Whether a healthy cluster contains it."""
        return self.running and not self.is_out

    @property
    def pid(self) -> int:
        """The id of the running process."""
        assert self.process is not None, f"node {self.node_id} does not run"
        return self.process.pid

    @property
    def config(self) -> Path:
        return self.directory / "tidelog.toml"

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def log(self) -> Path:
        return self.directory / "node.log"

    def describe_end(self) -> str:
        """How the process of the node ended, with the last lines of its log."""
        assert self.process is not None, f"node {self.node_id} was never started"
        return f"node {self.node_id} {_outcome(self.process.returncode)}:\n{self.log_tail()}"

    def log_tail(self, lines: int = 15) -> str:
        """The last lines of its log output."""
        with contextlib.suppress(OSError):
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        return ""


class LocalCluster:
    """Nodes 0 to N-1; node 0 forms the cluster. A context manager that starts all nodes and leaves none running."""

    def __init__(
        self,
        directory: Path | str,
        nodes: int = 3,
        *,
        settings: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
        first_port: int = 0,
        inner: bool = False,
        kafka: bool = False,
        tls: Tls | None = None,
        tiered: bool = False,
    ) -> None:
        """directory: created if missing; an existing cluster in it is continued, with at least its nodes. settings:
        further configuration (`{"broker.session.timeout.ms": 1000}`). first_port: port of the listener KAFKA of node 0,
        the other nodes follow, their listeners GRPC are 100 and their metrics 200 higher; 0: any. Addresses of an
        existing cluster are kept. inner: nodes reach each other at a
        listener INNER. kafka: there is a listener KAFKA. tls: the files for queries at the listener GRPC. tiered: the
        nodes have a remote tier, whose store is a folder in `directory`; a cluster that has one keeps it. Raises
        ClusterFailed if the directory has more nodes."""
        self.directory = Path(directory).resolve()
        self.store: Path | None = None
        """The folder that is the object store of the remote tier; None without a tier in this directory."""
        # Once segments have left the nodes, the nodes need the store at each start.
        if tiered or (self.directory / STORE_FOLDER).is_dir():
            self.store = self.directory / STORE_FOLDER
        self._environment = dict(environment or {})
        self._tls = tls
        self._settings = {**({} if self.store is None else {_STORE_URL: self.store.as_uri()}), **(settings or {})}
        self._is_new = node_count(self.directory) == 0
        self.nodes = self._prepare(nodes, first_port, inner=inner, kafka=kafka)
        self.write_configs()

    # --- lifecycle ---

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.kill_all()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop() if kind is None else self.kill_all()

    def start(self) -> None:
        """Start all nodes that do not run. Raises ClusterFailed if an address of theirs is in use; of a new cluster
        nothing is left then."""
        stopped = [node for node in self.nodes if not node.running]
        try:
            for node in stopped:
                _ensure_free(node)
        except ClusterFailed:
            if self._is_new:
                # The configurations keep the addresses: with one that is in use, another port could never be chosen.
                self._remove_configs()
            raise
        self._is_new = False
        for node in stopped:
            self.start_node(node.node_id)

    def run(self, *, ready: Callable[[], None], say: Callable[[str], None]) -> None:
        """Start all nodes, call `ready` once all have joined, keep them running until SIGINT or SIGTERM, and stop all.

        A node that ends is restarted on its data. Raises ClusterFailed if a node cannot run.
        """
        signals: list[int] = []
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda received, _frame: signals.append(received))
        try:
            self.start()
            what = f"all {len(self.nodes)} nodes have joined the cluster and know its controller"
            self.wait_until(lambda: signals or self._joined(), within_s=60, what=what)
            if not signals:
                ready()
            restarted: dict[int, float] = {}
            while not signals:
                for node in self.nodes:
                    if not node.running:
                        self._restart(node, restarted, say)
                time.sleep(_POLL_S)
            say("stopping")
            self.stop()
        finally:
            self.kill_all()

    def _restart(self, node: LocalNode, restarted: dict[int, float], say: Callable[[str], None]) -> None:
        now = time.monotonic()
        if now < restarted.get(node.node_id, -_SHORT_RUN_S) + _SHORT_RUN_S:
            raise ClusterFailed(node.describe_end())
        assert node.process is not None, "it ran before"
        say(f"node {node.node_id} {_outcome(node.process.returncode)}: it is restarted; it logs to {node.log}")
        restarted[node.node_id] = now
        self._end(node, signal.SIGKILL)
        self.start_node(node.node_id)

    def start_node(self, node_id: int) -> None:
        """Start one node on the present contents of its directory."""
        node = self.nodes[node_id]
        assert not node.running, f"node {node_id} runs already"
        home = Path(__file__).resolve().parents[2]  # the directory of `node`, `storage` and `replication`
        path = os.pathsep.join([str(home), *(entry for entry in sys.path if entry and Path(entry).is_dir())])
        with node.log.open("ab") as log:
            node.process = subprocess.Popen(
                [
                    *node.wrapper,
                    sys.executable,
                    *self._program(node),
                    "--config",
                    str(node.config),
                    "--until-stdin-ends",
                ],
                cwd=node.directory,
                env={**os.environ, "PYTHONPATH": path, **self._environment},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # an interrupt at the terminal reaches only this process
            )

    @staticmethod
    def _program(node: LocalNode) -> list[str]:  # noqa: ARG004 - for subclasses
        """The arguments of Python that name the program of a node."""
        return ["-m", "node"]

    def kill(self, node_id: int) -> None:
        """Kill a node (SIGKILL) and wait until it has ended."""
        self._end(self.nodes[node_id], signal.SIGKILL)

    def kill_all(self) -> None:
        """Kill all nodes at once (SIGKILL)."""
        for node in self.nodes:
            if node.running:
                os.kill(node.pid, signal.SIGKILL)
        for node in self.nodes:
            self._end(node, signal.SIGKILL)

    def stop_node(self, node_id: int, timeout_s: float = 45) -> int:
        """Stop one node gracefully. Returns its exit code."""
        return self._end(self.nodes[node_id], signal.SIGTERM, timeout_s)

    def stop(self, timeout_s: float = 45) -> None:
        """Stop all nodes gracefully at once. Kills those that do not end in time and raises ClusterFailed."""
        running = [node for node in self.nodes if node.running]
        for node in running:
            os.kill(node.pid, signal.SIGTERM)
        deadline = time.monotonic() + timeout_s
        stuck = []
        for node in running:
            assert node.process is not None
            try:
                node.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                stuck.append(node)
        for node in self.nodes:
            self._end(node, signal.SIGKILL)
        if stuck:
            names = ", ".join(f"node {node.node_id}" for node in stuck)
            raise ClusterFailed(f"{names} did not stop within {timeout_s:g} s:\n{stuck[0].log_tail()}")

    @staticmethod
    def _end(node: LocalNode, number: signal.Signals, timeout_s: float = 45) -> int:
        process, node.process = node.process, None
        if process is None:
            return 0
        if process.poll() is None:
            process.send_signal(number)
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise ClusterFailed(
                f"node {node.node_id} did not stop within {timeout_s:g} s:\n{node.log_tail()}"
            ) from None
        finally:
            if process.stdin is not None:
                process.stdin.close()
            keep_ports(address.port for address in node.bound)  # it may start again
        return code

    # --- queries ---

    @property
    def bootstrap(self) -> str:
        """Addresses of all nodes, in the form that clients expect."""
        return ",".join(str(node.address) for node in self.nodes)

    @property
    def kafka_bootstrap(self) -> str:
        """The same for clients of Kafka."""
        return ",".join(str(node.kafka) for node in self.nodes)

    def describe(self, node_id: int) -> admin_pb2.DescribeClusterResponse:
        """The cluster as one node describes it. Raises the error of the answer, or ConnectionFailed."""
        answer: admin_pb2.DescribeClusterResponse = self._call(
            node_id, methods.ADMIN_DESCRIBE_CLUSTER, admin_pb2.DescribeClusterRequest()
        )
        return answer

    def metadata(self, node_id: int, *topics: str) -> admin_pb2.GetMetadataResponse:
        """Topics, leaders and in-sync sets as known to one node; all topics if none is named."""
        request = admin_pb2.GetMetadataRequest(topics=topics, all_topics=not topics)
        answer: admin_pb2.GetMetadataResponse = self._call(node_id, methods.ADMIN_GET_METADATA, request)
        return answer

    def create_topic(self, name: str, partitions: int = 1, replicas: int = 3, **configs: str) -> bytes:
        """Create a topic and wait until all replicas are in sync and all leaders serve it. configs: topic settings,
        with `_` for `.`. Returns the topic's id."""
        topic = admin_pb2.CreateTopic(
            name=name,
            partitions=partitions,
            replication_factor=replicas,
            configs={key.replace("_", "."): value for key, value in configs.items()},
        )
        request = admin_pb2.CreateTopicsRequest(topics=[topic])
        created = self._create(request, name)
        self.wait_until(
            lambda: self._in_sync(name, partitions) and self._is_served(name),
            within_s=20,
            what=f"topic {name} is in sync everywhere, and its leaders serve it",
        )
        return created

    def _create(self, request: admin_pb2.CreateTopicsRequest, name: str) -> bytes:
        """Send the request until the active controller answers: that of before may have ended, or be paused. Returns
        the topic's id."""
        deadline = time.monotonic() + _CREATE_S
        for attempt in itertools.count():
            node_id = self._running_node().node_id
            try:
                answer: admin_pb2.ChangedTopics = self._call(node_id, methods.ADMIN_CREATE_TOPICS, request, 5)
                return status.sound(answer.topics[0]).topic_id
            except TopicExists:
                if attempt == 0:
                    raise
                return self.metadata(node_id, name).topics[0].topic_id  # made by a request without an answer
            except (ConnectionFailed, NotController, RequestTimedOut):
                if time.monotonic() > deadline:
                    raise
            self._all_alive()
            time.sleep(_POLL_S)
        raise AssertionError("unreachable")

    def wait_healthy(self, within_s: float = 30, *, in_sync: bool = True) -> None:
        """Wait until every running node, less those that are paused or cut off, is ready and reports that just these
        are unfenced, that every partition has a leader and, if `in_sync` and these are all nodes, that every replica is
        in sync. Raises ClusterFailed with what is missing."""
        missing = ""

        def is_healthy() -> bool:
            nonlocal missing
            missing = self._missing(in_sync=in_sync)
            return not missing

        def what() -> str:
            return f"the cluster is healthy ({missing})" if missing else "the cluster is healthy"

        self.wait_until(is_healthy, within_s=within_s, what=what)

    def wait_until(self, reached: Callable[[], object], *, within_s: float, what: str | Callable[[], str]) -> None:
        """Wait until `reached()` is true; a TidelogError counts as false. what: for the error. Raises ClusterFailed."""
        deadline = time.monotonic() + within_s
        last: TidelogError | None = None
        while True:
            try:
                if reached():
                    return
                last = None
            except TidelogError as error:
                last = error
            self._all_alive()
            if time.monotonic() > deadline:
                logs = "\n".join(f"node {node.node_id}:\n{node.log_tail()}" for node in self.nodes)
                unmet = what if isinstance(what, str) else what()
                answer = "" if last is None else f"; the last answer: {last}"
                raise ClusterFailed(f"not within {within_s:g} s: {unmet}{answer}\n{logs}")
            time.sleep(_POLL_S)

    def _missing(self, *, in_sync: bool) -> str:
        """What a healthy cluster would have; empty: it is healthy."""
        expected = {node.node_id for node in self.nodes if node.is_expected}
        if not expected:
            return "no node runs, or all that run are paused or cut off: start one"
        absent = [node.node_id for node in self.nodes if not node.is_expected]
        others = f"; nodes {absent} do not run, or are paused or cut off" if absent else ""
        for node_id in sorted(expected):
            # A process that starts again describes the cluster of before its end until it is registered again.
            if not ask(str(self.nodes[node_id].address), READY, round(_CALL_S * 1000), self._tls):
                return f"node {node_id} is not ready{others}"
            cluster = self.describe(node_id)
            unfenced = {node.address.node_id for node in cluster.nodes if not node.fenced}
            if cluster.controller_id < 0:
                return f"node {node_id} knows no active controller{others}"
            if unfenced != expected:
                return (
                    f"node {node_id} knows as not fenced nodes {sorted(unfenced)} instead of {sorted(expected)}{others}"
                )
            if cluster.leaderless_partitions:
                return f"partitions without a leader: {cluster.leaderless_partitions}{others}"
            if in_sync and not absent and cluster.under_replicated_partitions:
                return f"partitions with a replica that is not in sync: {cluster.under_replicated_partitions}"
        return ""

    def _joined(self) -> bool:
        """Whether every node reports a controller, and that all nodes are unfenced. Without a controller the quorum has
        no majority, and the nodes report what they knew when they were stopped."""
        found = [self.describe(node.node_id) for node in self.nodes]
        return all(
            each.controller_id >= 0 and sum(not known.fenced for known in each.nodes) >= len(self.nodes)
            for each in found
        )

    def _in_sync(self, name: str, partitions: int) -> bool:
        for node in self.nodes:
            if node.is_expected:
                (topic,) = self.metadata(node.node_id, name).topics
                in_sync = [
                    state for state in topic.partitions if state.leader >= 0 and set(state.isr) == set(state.replicas)
                ]
                if len(in_sync) != partitions:
                    return False
        return True

    def _is_served(self, name: str) -> bool:
        """Whether the leader of each partition serves it: a new leader may still be creating the log."""
        (topic,) = self.metadata(self._running_node().node_id, name).topics
        for state in topic.partitions:
            wanted = data_pb2.ListOffsetsPartition(
                topic_id=topic.topic_id, partition=state.partition, current_leader_epoch=-1, timestamp_ms=-1
            )
            request = data_pb2.ListOffsetsRequest(partitions=[wanted])
            (answer,) = self._call(state.leader, methods.DATA_LIST_OFFSETS, request).partitions
            if answer.HasField("error"):
                return False
        return True

    def _all_alive(self) -> None:
        for node in self.nodes:
            if node.process is not None and node.process.poll() is not None:
                raise ClusterFailed(node.describe_end())

    def _running_node(self) -> LocalNode:
        for node in self.nodes:
            if node.is_expected:
                return node
        raise ClusterFailed("no node runs, or all that run are paused or cut off: start one")

    def _call(self, node_id: int, method: Method[Any, Any], request: Any, timeout_s: float = _CALL_S) -> Any:
        address = self.nodes[node_id].address
        with blocking_channel(str(address), self._tls) as channel:
            call = channel.unary_unary(
                method.path,
                request_serializer=wire.writer(method.request),
                response_deserializer=wire.reader(method.answer),
            )
            try:
                return call(request, timeout=timeout_s)
            except grpc.RpcError as error:
                raise status.from_rpc_error(error, address=address, phase=str(method)) from None

    # --- directories and addresses ---

    def _prepare(self, count: int, first_port: int, *, inner: bool, kafka: bool) -> list[LocalNode]:
        existing = node_count(self.directory)
        if count < existing:
            raise ClusterFailed(
                f"{self.directory} has a cluster of {existing} nodes, and {count} of them may not be a majority of its "
                f"voters: start all (--nodes {existing}), or choose another directory"
            )
        nodes = []
        try:
            ports = iter(free_ports(4 * count))
        except OSError as error:
            raise ClusterFailed(f"the nodes have no addresses: {error.strerror}") from None
        for node_id in range(count):
            directory = self.directory / f"node-{node_id}"
            known = _known_addresses(directory / "tidelog.toml")
            port = first_port + node_id
            chosen = (port + GRPC_ABOVE, port, port + METRICS_ABOVE) if first_port else [next(ports) for _ in range(3)]
            grpc_port, kafka_port, metrics_port = chosen
            address = known.get(GRPC_LISTENER) or Endpoint(HOST, grpc_port)
            node = LocalNode(node_id, directory, address, known.get(_METRICS) or Endpoint(HOST, metrics_port))
            if inner:
                node.inner = known.get(_INNER) or Endpoint(HOST, next(ports))
            if kafka:
                node.kafka = known.get(_KAFKA) or Endpoint(HOST, kafka_port)
            nodes.append(node)
        return nodes

    def write_configs(self) -> None:
        """Write the configuration of each node, for its next start."""
        for node in self.nodes:
            node.directory.mkdir(parents=True, exist_ok=True)
            node.config.write_text(_config_of(node, self.nodes, self._settings), encoding="utf-8")

    def _remove_configs(self) -> None:
        for node in self.nodes:
            node.config.unlink(missing_ok=True)
        for directory in (*(node.directory for node in self.nodes), self.directory):
            with contextlib.suppress(OSError):  # something else is in it
                directory.rmdir()


def first_kafka_port(directory: Path) -> int | None:
    """The port of the listener KAFKA of node 0 of the cluster in a directory; None if there is none. Raises
    ClusterFailed."""
    known = _known_addresses(directory / "node-0" / "tidelog.toml").get(_KAFKA)
    return None if known is None else known.port


def node_count(directory: Path) -> int:
    """The number of nodes of the cluster in a directory, with or without a configuration; 0 if there is none."""
    return sum(each.is_dir() for each in directory.glob("node-*"))


def _config_of(node: LocalNode, nodes: list[LocalNode], settings: Mapping[str, Any]) -> str:
    config = {
        "node.id": node.node_id,
        "log.dirs": [str(node.data)],
        "listeners": [f"{name}://{address}" for name, address in node.listeners.items()],
        **({_BETWEEN: _INNER, PROTOCOLS.name: [f"{_INNER}:GRPC"]} if node.inner else {}),
        "cluster.bootstrap.node.id": 0,
        **({"advertised.listeners": [f"{_INNER}://{node.between}"]} if node.between else {}),
        "controller.quorum.bootstrap.servers": [str(each.between or each.inner or each.address) for each in nodes],
        _METRICS: str(node.metrics),
        **settings,
    }
    # Strings, numbers, booleans and lists of them have the same form in JSON and TOML.
    return _GENERATED + "".join(f"{json.dumps(key)} = {json.dumps(value)}\n" for key, value in config.items())


def _known_addresses(config: Path) -> dict[str, Endpoint]:
    """The addresses in an existing configuration by the names of the listeners; empty if there is none. Raises
    ClusterFailed."""
    try:
        values = tomllib.loads(config.read_text(encoding="utf-8"))
        listeners = dict(text.split("://") for text in values["listeners"])
        texts = {GRPC_LISTENER: listeners[GRPC_LISTENER], **listeners, _METRICS: values[_METRICS]}
        pairs = {name: text.rpartition(":") for name, text in texts.items()}
        return {name: Endpoint(host, int(port)) for name, (host, _, port) in pairs.items()}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ClusterFailed(
            f"{config} does not name the addresses of the node ({error!r}): the file was changed, or is of an earlier "
            "version. Remove it, and those of the other nodes of an earlier version; the next start writes new ones"
        ) from error


def _outcome(code: int) -> str:
    """How a process ended, as text."""
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"ended by itself with exit code {code}"


def _ensure_free(node: LocalNode) -> None:
    """Raise ClusterFailed if an address of the node is in use."""
    for address in node.bound:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # an old connection in TIME_WAIT is no listener
            try:
                probe.bind((address.host, address.port))
            except OSError as error:
                raise ClusterFailed(
                    f"node {node.node_id} cannot listen at {address} ({error.strerror}): another process, perhaps "
                    "another cluster, uses it. Stop that, or choose other ports; a directory with a cluster keeps its "
                    "ports"
                ) from None
