"""Nodes as processes of this machine: the cluster of `tidelog.testing`, and what the kernel does to a process."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from node.listener_settings import PROTOCOLS, ListenerTls
from testbed.faulty_cluster import FaultyCluster
from testbed.links import LinkShape
from tests.certificates import Authority, settings_of
from tests.chaos.cluster_nodes import ClusterNodes
from tests.chaos.nodes import Addresses, Network
from tests.chaos.other_version import OtherVersion

SETTINGS: Final[Mapping[str, object]] = {
    "broker.session.timeout.ms": 3_000,
    "broker.heartbeat.interval.ms": 500,
    "min.insync.replicas": 2,
    "log.cleaner.backoff.ms": 1_000,
}
"""A node that is paused for some seconds is replaced; one that only waits for a busy core is not."""
_PERIOD_S: Final = 0.1
"""Of a starved process: it runs for a share of it."""
_SPARE_BYTES: Final = 4 << 20
"""Of a process whose memory is limited: what it may still ask for."""
_NO_PACKETS: Final = "the links between processes are TCP proxies, which have no packets (RUNTIME=container)"


class _Cluster(FaultyCluster):
    """Nodes that show each other certificates, each its own; clients do not."""

    def __init__(self, directory: Path, count: int) -> None:
        self._authority = Authority(directory / "certificates")
        encrypted = {PROTOCOLS.name: ["INNER:GRPC_SSL"], "authorizer.class.name": "none"}
        super().__init__(directory, count, settings={**SETTINGS, **encrypted})

    def write_configs(self) -> None:
        super().write_configs()
        for node in self.nodes:
            own = settings_of(self.make_certificate(node.node_id))
            with node.config.open("a", encoding="utf-8") as config:
                # Strings have the same form in JSON and TOML.
                config.writelines(f"{json.dumps(name)} = {json.dumps(value)}\n" for name, value in own.items())

    def make_certificate(self, node_id: int, *, age_days: int = 0) -> ListenerTls:
        """Replace the certificate of a node. It is valid for a day."""
        return self._authority.node(f"node-{node_id}", age_days=age_days)


class ProcessNodes(ClusterNodes):
    """See nodes.py. Nodes reach each other through proxies, clients reach them directly."""

    cannot: Mapping[str, str] = dict.fromkeys(("loss", "reorder", "duplicate", "corrupt"), _NO_PACKETS)

    def __init__(self, directory: Path, count: int, other: OtherVersion | None = None) -> None:
        self._cluster = _Cluster(directory, count)
        super().__init__(self._cluster, other)
        for node in range(count):
            self.choose_version(node, other=other is not None)
        self._starving: dict[int, _Starvation] = {}
        try:
            self._cluster.start()
        except BaseException:
            self._cluster.close()
            raise

    @property
    def addresses(self) -> Addresses:
        return Addresses(self._cluster.bootstrap, self._cluster.kafka_bootstrap)

    def close(self) -> None:
        for node in list(self._starving):
            self.starve(node, 0)
        self._cluster.close()

    def keep_logs(self, directory: Path) -> None:
        for node in self._cluster.nodes:
            shutil.copy(node.log, directory / f"node-{node.node_id}.log")

    # --- processes ---

    def choose_version(self, node: int, *, other: bool) -> None:
        self._cluster.nodes[node].wrapper = self.other.wrapper if other and self.other is not None else ()

    def kill(self, *nodes: int) -> None:
        for node in nodes:
            if self.is_running(node):
                os.kill(self._cluster.nodes[node].pid, signal.SIGKILL)
        for node in nodes:
            self._cluster.kill(node)

    def terminate(self, node: int) -> None:
        self._cluster.stop_node(node, timeout_s=60)

    def start(self, node: int) -> None:
        if not self.is_running(node):
            self._cluster.kill(node)  # it may have ended by itself
            self._cluster.start_node(node)

    def pause(self, node: int) -> None:
        self._cluster.pause(node)

    def resume(self, node: int) -> None:
        self._cluster.resume(node)

    # --- links ---

    def cut_off(self, node: int, *others: int) -> None:
        self._cluster.cut_off(node, *others)

    def silence(self, node: int) -> None:
        self._cluster.silence(node)

    def shape(self, node: int, network: Network) -> None:
        if network.lost or network.reordered or network.duplicate or network.corrupt:
            raise ValueError(_NO_PACKETS)
        self._cluster.shape(node, LinkShape(network.delay_ms, network.bytes_per_s))

    def reconnect(self, node: int) -> None:
        self._cluster.reconnect(node)

    # --- disks ---

    def slow_disk(self, node: int, sync_ms: float) -> None:
        self._cluster.slow_disk(node, sync_ms)

    def fill_disk(self, node: int, *, full: bool) -> None:
        self._cluster.fill_disk(node, full=full)

    def break_disk(self, node: int, write_errno: int) -> None:
        self._cluster.break_disk(node, write_errno)

    def data(self, node: int) -> Path:
        return self._cluster.nodes[node].data

    # --- resources ---

    def starve(self, node: int, share: float) -> None:
        if (former := self._starving.pop(node, None)) is not None:
            former.end()
        if share:
            self._starving[node] = _Starvation(self._cluster.nodes[node].pid, share)

    def limit_memory(self, node: int) -> None:
        pid = self._cluster.nodes[node].pid
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
        present = pages * resource.getpagesize()
        _, hard = resource.prlimit(pid, resource.RLIMIT_AS)
        resource.prlimit(pid, resource.RLIMIT_AS, (present + _SPARE_BYTES, hard))

    def lift_memory_limit(self, node: int) -> None:
        if self.is_running(node):
            pid = self._cluster.nodes[node].pid
            _, hard = resource.prlimit(pid, resource.RLIMIT_AS)
            resource.prlimit(pid, resource.RLIMIT_AS, (hard, hard))

    # --- clocks and certificates ---

    def set_clock(self, node: int, ahead_ms: int, drift: float = 0) -> None:
        self._cluster.set_clock(node, ahead_ms, drift)

    def expire_certificate(self, node: int, *, expired: bool) -> None:
        self._cluster.make_certificate(node, age_days=2 if expired else 0)


class _Starvation:
    """A process that is stopped for most of each tenth of a second: it gets only a share of one core. Unlike a limit of
    a control group, it needs no rights."""

    def __init__(self, pid: int, share: float) -> None:
        self._pid, self._share = pid, share
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"starvation of {pid}", daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            while not self._ended.wait(_PERIOD_S * self._share):
                os.kill(self._pid, signal.SIGSTOP)
                self._ended.wait(_PERIOD_S * (1 - self._share))
                os.kill(self._pid, signal.SIGCONT)
