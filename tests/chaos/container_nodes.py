"""Nodes as containers: what the rendered manifest of deploy/k8s says of a pod, on a Docker network of its own, with
what the kernel does to packets, disk and processes of a container. Needs a Docker engine on this machine, and root.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from docker.errors import NotFound
from docker.models.containers import Container

from node.process.local_cluster import LocalCluster, LocalNode
from node.process.probe import ask
from tests.chaos.cluster_nodes import ClusterNodes
from tests.chaos.kubelet import Kubelet, Probe, probes_of
from tests.chaos.nodes import Addresses, Network
from tests.chaos.other_version import OtherVersion
from tests.chaos.packets import PacketFault, nfqueue_works
from tests.integration import manifest
from tests.integration.containers import config_directory, labelled, network_of, start_pod
from tidelog.errors import TidelogError
from tidelog.types import Endpoint

DISK_BYTES: Final = 4 << 30
"""Sparse: preallocated files of the nodes need no room of the machine."""
SPARE_BYTES: Final = 4 << 20
"""Of a container whose memory is limited: what it may still ask for."""
PERIOD_US: Final = 100_000
"""Of the processor's shares."""
STOP_S: Final = 30
LOOK_S: Final = 0.5
"""Between two looks of the kubelet."""
_EXT4_SHUTDOWN: Final = 0x8004587D
"""EXT4_IOC_SHUTDOWN: from then on each call on the file system fails with EIO."""
_NOT_SYNCED: Final = struct.pack("I", 2)
"""EXT4_GOING_FLAGS_NOLOGFLUSH: the journal is not written first, as when a disk is pulled out."""
PACKETS: Final = ("delay", "reorder", "duplicate", "corrupt")
"""Faults that netem plays, or a program at the other end of NFQUEUE."""
_NEITHER: Final = "this kernel has neither netem (sch_netem) nor NFQUEUE (nfnetlink_queue, xt_NFQUEUE)"


@cache
def missing() -> str | None:
    """What this machine lacks for nodes in containers; None: nothing."""
    if os.geteuid() != 0:
        return "only root enters the namespaces of containers"
    for program in ("docker", "kubectl", "nsenter", "iptables", "tc", "mkfs.ext4", "losetup", "unshare"):
        if shutil.which(program) is None:
            return f"there is no {program}"
    image = manifest.Pod(0).image
    found = subprocess.run(["docker", "image", "inspect", image], capture_output=True, text=True, check=False)
    if found.returncode != 0:
        return f"no Docker engine answers, or it lacks the image {image}, which `make image` builds"
    return None


@cache
def _netem_works() -> bool:
    """Whether this kernel can delay packets."""
    tried = ["unshare", "-n", "tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"]
    return subprocess.run(tried, capture_output=True, check=False).returncode == 0


class _Node(LocalNode):
    """A container, in the place of a process."""

    __slots__ = ("container", "disk", "image")

    container: Container
    disk: _Disk
    image: str
    """Of its next start."""

    @property
    def running(self) -> bool:
        self.container.reload()
        return self.container.status == "running"

    @property
    def started_at(self) -> str | None:
        """Names the present start of its container; None: it does not run."""
        try:
            return str(self.container.attrs["State"]["StartedAt"]) if self.running else None
        except NotFound:
            return None  # another container takes its place

    @property
    def pid(self) -> int:
        """As this machine numbers it."""
        self.container.reload()
        pid = int(self.container.attrs["State"]["Pid"])
        if pid == 0:  # a signal to process 0 would stop this program and all that it has started
            raise ProcessLookupError(f"container {self.container.name} does not run")
        return pid

    def log_tail(self, lines: int = 15) -> str:
        return self.container.logs(tail=lines).decode(errors="replace")


class _Queries(LocalCluster):
    """The questions that one asks a cluster, of these nodes."""

    def __init__(self, nodes: list[_Node]) -> None:
        self.nodes = list[LocalNode](nodes)
        self._tls = None


class _Disk:
    """A file system in a file, mounted where the container finds its data."""

    def __init__(self, directory: Path, owner: str) -> None:
        self.directory = directory
        self._image = directory.with_suffix(".img")
        directory.mkdir(parents=True)
        with self._image.open("wb") as file:
            file.truncate(DISK_BYTES)
        _run("mkfs.ext4", "-q", "-m", "0", str(self._image))
        self.mount()
        _run("chown", owner, str(directory))

    def mount(self) -> None:
        """On a loop device of its own: other mount namespaces, as that of the clients, may hold the former mount, and
        on the same device the file system would be the one that has been shut down."""
        device = _run("losetup", "--find", "--show", str(self._image)).strip()
        try:
            _run("mount", device, str(self.directory))
        finally:
            _run("losetup", "-d", device)  # once nothing uses it

    def unmount(self) -> bool:
        return subprocess.run(["umount", str(self.directory)], capture_output=True, check=False).returncode == 0

    def replace(self) -> None:
        """Mount it again. Docker uses it for a moment after the end of a container."""
        deadline = time.monotonic() + STOP_S
        while not self.unmount():
            if time.monotonic() > deadline:
                raise RuntimeError(f"the disk at {self.directory} is in use for more than {STOP_S} s")
            time.sleep(0.1)
        self.mount()

    def fill(self) -> None:
        """Take all free blocks, in smaller and smaller pieces: the node takes some meanwhile."""
        with (self.directory / "ballast").open("wb") as file:
            end = 0
            for size in (256 << 20, 1 << 20, 4 << 10):
                with contextlib.suppress(OSError):
                    while True:
                        os.posix_fallocate(file.fileno(), end, size)
                        end += size

    def free(self) -> None:
        (self.directory / "ballast").unlink(missing_ok=True)

    def shut_down(self) -> None:
        descriptor = os.open(self.directory, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _EXT4_SHUTDOWN, _NOT_SYNCED)
        finally:
            os.close(descriptor)


class ContainerNodes(ClusterNodes):
    """See nodes.py. Clients of this machine reach the names of the pods through a file of hosts of their own."""

    cannot: Mapping[str, str] = {
        "slow-disk": "file systems of containers cannot be slowed down here (RUNTIME=process)",
        "read-only-disk": "a file system in use cannot be made read-only (RUNTIME=process)",
        "expired-certificate": "the manifests of deploy/k8s have no certificates (RUNTIME=process)",
        **dict.fromkeys(("clock", "drift"), "containers have the clock of the machine (RUNTIME=process)"),
        **({} if _netem_works() or nfqueue_works() else dict.fromkeys(PACKETS, _NEITHER)),
    }

    def __init__(self, directory: Path, count: int, other: OtherVersion | None = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._hosts = directory / "hosts"
        self._pods = [manifest.Pod(ordinal) for ordinal in range(count)]
        self._lock = threading.Lock()
        self._ended = contextlib.ExitStack()
        self._nodes: list[_Node] = []
        self._packet_faults: dict[int, PacketFault] = {}
        try:
            self._label = self._ended.enter_context(labelled())
            self._network = self._ended.enter_context(network_of(self._label))
            self._config = directory / "config"
            self._config.mkdir()
            config_directory(self._config, manifest.BASE)
            for pod in self._pods:
                disk = _Disk(directory / pod.name, pod.user)
                # Called before `labelled` removes the containers: each is removed first, then its disk.
                self._ended.callback(disk.unmount)
                node = _Node(pod.ordinal, directory / "logs" / pod.name, Endpoint("", 0), Endpoint("", 0))
                node.directory.mkdir(parents=True)
                node.disk, node.image = disk, other.image if other is not None else pod.image
                node.container = self._make(node)
                self._ended.callback(self._remove, node)
                self._nodes.append(node)
            super().__init__(_Queries(self._nodes), other)
            for node in self._nodes:
                self._learn_address(node)
            self._closing = threading.Event()
            self._kubelets = list(map(self._kubelet_of, self._nodes))
            for node, kubelet in zip(self._nodes, self._kubelets, strict=True):
                probing = threading.Thread(target=self._probe, args=(node, kubelet), daemon=True)
                probing.start()
                self._ended.callback(probing.join)
            self._ended.callback(self._closing.set)
        except BaseException:
            self._ended.close()
            raise

    @property
    def addresses(self) -> Addresses:
        names = [f"{pod.host_names[0]}" for pod in self._pods]
        wrapper = ("unshare", "-m", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"', str(self._hosts))
        return Addresses(
            ",".join(f"{each}:9192" for each in names), ",".join(f"{each}:9092" for each in names), wrapper
        )

    def close(self) -> None:
        for fault in self._packet_faults.values():
            fault.end()
        self._ended.close()

    def container(self, node: int) -> Container:
        return self._nodes[node].container

    def keep_logs(self, directory: Path) -> None:
        for node in self._nodes:
            earlier = node.log.read_bytes() if node.log.exists() else b""
            (directory / f"node-{node.node_id}.log").write_bytes(earlier + node.container.logs())

    @staticmethod
    def _remove(node: _Node) -> None:
        node.container.remove(force=True)

    def _make(self, node: _Node) -> Container:
        """A container that runs, of the node's image."""
        pod = self._pods[node.node_id]
        made = start_pod(
            pod, {"config": self._config}, self._network, self._label, data=node.disk.directory, image=node.image
        )
        assert made.client is not None
        # Else each request reads os.environ, in a kubelet's thread, which ends if pytest changes it meanwhile.
        made.client.api.trust_env = False
        return made

    def _learn_address(self, node: _Node) -> None:
        """A container may get another address with each start; clients learn it as from DNS."""
        node.container.reload()
        (network,) = node.container.attrs["NetworkSettings"]["Networks"].values()
        node.address = Endpoint(network["IPAddress"], self._pods[node.node_id].health_port)
        with self._lock:
            lines = ["127.0.0.1 localhost"]
            lines += [
                f"{each.address.host} {' '.join(self._pods[each.node_id].host_names)}"
                for each in self._nodes
                if each.address.host
            ]
            # In place: the file is mounted where clients look.
            self._hosts.write_text("\n".join(lines) + "\n")

    # --- processes ---

    def kill(self, *nodes: int) -> None:
        running = [self._nodes[node].container for node in nodes if self.is_running(node)]
        for container in running:
            container.kill("SIGKILL")
        for container in running:
            container.wait(timeout=STOP_S)

    def terminate(self, node: int) -> None:
        """As the kubelet does: preStop, SIGTERM, and SIGKILL after the grace period."""
        pod, container = self._pods[node], self._nodes[node].container
        time.sleep(pod.pre_stop_s)
        if self.is_running(node):  # a fault may have ended it
            container.kill("SIGTERM")
            container.wait(timeout=pod.grace_s - pod.pre_stop_s)

    def start(self, node: int) -> None:
        found = self._nodes[node]
        if found.running:
            return
        if found.container.attrs["Config"]["Image"] == found.image:
            found.container.start()
        else:
            # As Kubernetes does: a pod of another image is another pod, on the same volume.
            with found.log.open("ab") as log:
                log.write(found.container.logs())
            self._remove(found)
            found.container = self._make(found)
        self._learn_address(found)

    def choose_version(self, node: int, *, other: bool) -> None:
        found = self._nodes[node]
        found.image = self.other.image if other and self.other is not None else self._pods[node].image

    def pause(self, node: int) -> None:
        os.kill(self.pid(node), signal.SIGSTOP)

    def resume(self, node: int) -> None:
        os.kill(self.pid(node), signal.SIGCONT)

    # --- the kubelet ---

    def _probe(self, node: _Node, kubelet: Kubelet) -> None:
        kubelet.run(lambda: node.started_at, time.monotonic, lambda: self._closing.wait(LOOK_S))

    def ensure_running(self) -> None:
        for kubelet in self._kubelets:
            kubelet.ensure_alive()
        super().ensure_running()

    def _kubelet_of(self, node: _Node) -> Kubelet:
        return Kubelet(
            node.node_id,
            probes_of(manifest.container()),
            lambda probe: self.answers(node.node_id, probe),
            lambda: self.restart(node.node_id),
            self.probed.append,
        )

    def answers(self, node: int, probe: Probe) -> bool:
        with contextlib.suppress(TidelogError):
            return ask(str(self._nodes[node].address), probe.service, round(probe.timeout_s * 1_000))
        return False

    def restart(self, node: int) -> None:
        """As the kubelet does with a container that does not live. A fault may end it, or start it, meanwhile."""
        pod = self._pods[node]
        time.sleep(pod.pre_stop_s)
        with contextlib.suppress(NotFound):  # another container takes its place
            self._nodes[node].container.stop(timeout=pod.grace_s - pod.pre_stop_s)
            self.start(node)

    # --- the network ---

    def cut_off(self, node: int, *others: int) -> None:
        for other in others or self._others(node):
            self._drop(node, "OUTPUT", "-d", self._host(other))
            self._drop(node, "INPUT", "-s", self._host(other))

    def silence(self, node: int) -> None:
        for other in self._others(node):
            self._drop(node, "OUTPUT", "-d", self._host(other))

    def shape(self, node: int, network: Network) -> None:
        """Of what it sends; packets are lost in both directions."""
        if network.lost:
            for chain in ("INPUT", "OUTPUT"):
                self._drop(node, chain, "-m", "statistic", "--mode", "random", "--probability", f"{network.lost:.3f}")
        if network.bytes_per_s:
            rate = ["rate", f"{network.bytes_per_s * 8:.0f}bit", "burst", "32kb", "latency", "400ms"]
            self._in_network(node, "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", *rate)
        if network.delay_ms or network.duplicate or network.corrupt:
            if _netem_works():
                self._in_network(node, "tc", "qdisc", "add", "dev", "eth0", "root", "netem", *_netem_options(network))
            else:
                self._packet_faults[node] = PacketFault(self.pid(node), "eth0", network)

    def reconnect(self, node: int) -> None:
        if (fault := self._packet_faults.pop(node, None)) is not None:
            fault.end()
        self._in_network(node, "iptables", "-F")
        shaped = ["nsenter", "-t", str(self.pid(node)), "-n", "tc", "qdisc", "del", "dev", "eth0", "root"]
        subprocess.run(shaped, capture_output=True, check=False)  # fails where nothing was shaped

    def _drop(self, node: int, chain: str, *what: str) -> None:
        self._in_network(node, "iptables", "-w", "-A", chain, *what, "-j", "DROP")

    def _in_network(self, node: int, *command: str) -> None:
        _run("nsenter", "-t", str(self.pid(node)), "-n", *command)

    def _others(self, node: int) -> list[int]:
        return [other for other in range(self.count) if other != node]

    def _host(self, node: int) -> str:
        return self._nodes[node].address.host

    # --- disks ---

    def slow_disk(self, node: int, sync_ms: float) -> None:
        raise ValueError(self.cannot["slow-disk"])

    def fill_disk(self, node: int, *, full: bool) -> None:
        disk = self._nodes[node].disk
        disk.fill() if full else disk.free()

    def break_disk(self, node: int, write_errno: int) -> None:
        """Every call fails with EIO from then on; afterwards the disk is mounted again, for a node that has ended."""
        disk = self._nodes[node].disk
        if write_errno:
            disk.shut_down()
        else:
            self.kill(node)
            disk.replace()

    def data(self, node: int) -> Path:
        return self._nodes[node].disk.directory / "data"

    # --- resources ---

    def starve(self, node: int, share: float) -> None:
        quota = max(int(share * PERIOD_US), 1_000) if share else -1
        self._nodes[node].container.update(cpu_period=PERIOD_US, cpu_quota=quota)

    def limit_memory(self, node: int) -> None:
        status = Path(f"/proc/{self.pid(node)}/status").read_text()
        resident = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert resident is not None
        limit = (int(resident[1]) << 10) + SPARE_BYTES
        self._nodes[node].container.update(mem_limit=limit, memswap_limit=limit)

    def lift_memory_limit(self, node: int) -> None:
        limit = self._pods[node].memory
        self._nodes[node].container.update(mem_limit=limit, memswap_limit=limit)

    # --- clocks and certificates ---

    def set_clock(self, node: int, ahead_ms: int, drift: float = 0) -> None:
        raise ValueError(self.cannot["clock"])

    def expire_certificate(self, node: int, *, expired: bool) -> None:
        raise ValueError(self.cannot["expired-certificate"])


def _netem_options(network: Network) -> list[str]:
    options = ["delay", f"{network.delay_ms:.0f}ms"] if network.delay_ms else []
    for name, share, correlated in (
        ("reorder", network.reordered, ["50%"]),
        ("duplicate", network.duplicate, []),
        ("corrupt", network.corrupt, []),
    ):
        if share:
            options += [name, f"{share:.1%}", *correlated]
    return options


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
