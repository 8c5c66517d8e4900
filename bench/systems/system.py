"""What the suite needs of a system under measurement, and processes that end with the suite.

Invariants: every process is started by this process and ended by its id when its block ends, also after an exception
or an interrupt; where `setpriv` exists the kernel kills it if this process dies without running any code.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import psutil

HOST: Final = "127.0.0.1"
NODES: Final = 3
HOME: Final = Path(__file__).resolve().parent.parent.parent
CLIENTS: Final = Path(os.environ.get("TIDELOG_BENCH_PEERS", HOME / "build" / "peers")) / "bin" / "python"
"""The interpreter of the environment with the peers' clients (bench/systems/requirements.txt)."""


class PeerMissing(Exception):
    """This machine does not have the peer; the text is one line and says what to install."""


class SystemFailed(Exception):
    """A system or one of its clients failed; the text is what it printed last."""


class System(ABC):
    """Three nodes of one system. A context manager that starts them and leaves none running."""

    name: str
    durability = "page cache"
    clients: tuple[str, ...]
    """Kinds of clients (modules bench/loads/KIND_load.py), the one that is compared first."""
    partitions_max = 1_000_000
    """Above this the system is left out of a figure: see the module of the system."""
    can_fsync = False
    """Whether a topic can sync each record before it is acknowledged."""
    can_tail = False
    """Whether the client measures many consumers of one partition, and a failover."""

    def __init__(self, directory: Path) -> None:
        """directory: created, for everything that the nodes write. Raises PeerMissing."""
        self.directory = directory
        self.children = Children(directory)
        directory.mkdir(parents=True)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @abstractmethod
    def start(self) -> None:
        """Start the nodes and wait until they serve."""

    def stop(self) -> None:
        """End all nodes."""
        self.children.end()

    @property
    @abstractmethod
    def pids(self) -> list[int]:
        """The processes of the nodes that run."""

    @property
    @abstractmethod
    def bootstrap(self) -> str:
        """The addresses, as the clients take them."""

    @property
    def topics_by(self) -> str:
        """The kind of client that creates and deletes topics."""
        return self.clients[0]

    def bootstrap_of(self, kind: str) -> str:
        """The addresses for this kind of client."""
        del kind
        return self.bootstrap

    def restart(self, pid: int) -> None:
        """Start the node again whose process `pid` was killed, and wait until it serves."""
        raise NotImplementedError(f"{self.name}: no failover is measured")

    def interpreter(self, kind: str) -> str:
        """The Python that runs a client."""
        del kind
        return str(CLIENTS)

    def label(self, client: str = "") -> str:
        """The name in figures, with what an acknowledgement means: `Kafka, librdkafka, page cache`."""
        return f"{self.name}, {client or self.clients[0]}, {self.durability}"

    def memory_used(self) -> int:
        """Bytes of memory that the nodes use."""
        return sum(psutil.Process(pid).memory_info().rss for pid in self.pids)

    @property
    @abstractmethod
    def version(self) -> str:
        """The version of the server."""


def need_clients() -> None:
    """Raises PeerMissing if the environment with the peers' clients is not there."""
    if not CLIENTS.exists():
        raise PeerMissing("its Python client is not installed: `make bench PEER=...` installs it")


class Children:
    """Processes of one system."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.patience_seconds = 20.0
        """From SIGTERM to SIGKILL."""

    def start(self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> int:
        """Start a process that writes to `NAME.log`. Returns its id."""
        with self.log(name).open("ab") as log:
            self._running[name] = subprocess.Popen(
                [*_DIES_WITH_US, *command],
                cwd=self._directory,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # an interrupt at the terminal reaches only this process
            )
        return self._running[name].pid

    def log(self, name: str) -> Path:
        return self._directory / f"{name}.log"

    def pids(self, names: Sequence[str]) -> list[int]:
        """The ids of those that run."""
        return [self._running[name].pid for name in names if self._running[name].poll() is None]

    def name_of(self, pid: int) -> str:
        return next(name for name, process in self._running.items() if process.pid == pid)

    def wait_dead(self, name: str) -> None:
        """Reap a process that was killed."""
        self._running[name].wait(self.patience_seconds)

    def wait_until(self, name: str, reached: Callable[[], bool], seconds: float = 90) -> None:
        """Raises SystemFailed if the process ends before, or if it takes longer."""
        deadline = time.monotonic() + seconds
        while not reached():
            if self._running[name].poll() is not None or time.monotonic() > deadline:
                with contextlib.suppress(OSError):
                    said = self.log(name).read_text(errors="replace")[-2000:]
                raise SystemFailed(f"{name} does not serve:\n{said}")
            time.sleep(0.1)

    def end(self) -> None:
        """SIGTERM to all, SIGKILL to those that remain."""
        for process in self._running.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + self.patience_seconds
        for process in self._running.values():
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._running.clear()


_DIES_WITH_US: Final = ("setpriv", "--pdeathsig", "KILL") if shutil.which("setpriv") else ()


def dies_with_us(command: Sequence[str]) -> list[str]:
    """The command, killed by the kernel when this process dies."""
    return [*_DIES_WITH_US, *command]


def answers(address: str) -> bool:
    """Whether something listens at `HOST:PORT`."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), 1).close()
    except OSError:
        return False
    return True
