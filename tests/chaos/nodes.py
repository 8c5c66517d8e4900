"""What a fault can do to the nodes of a cluster, whether these are processes or containers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tests.chaos.history import Probed
from tests.chaos.other_version import OtherVersion


@dataclass(frozen=True, slots=True)
class Addresses:
    """How a client outside of the cluster reaches it."""

    bootstrap: str
    kafka_bootstrap: str
    wrapper: tuple[str, ...] = ()
    """A command that is prefixed to that of the client, so that the advertised names lead to the nodes."""


@dataclass(frozen=True, slots=True)
class Network:
    """What the network does to the packets of a node, in both directions."""

    delay_ms: float = 0
    bytes_per_s: float = 0
    """0: without limit."""
    lost: float = 0
    """The share of the packets that never arrive."""
    reordered: float = 0
    """The share of the packets that is not delayed, and so overtakes others."""
    duplicate: float = 0
    """The share that arrives twice."""
    corrupt: float = 0
    """The share with a flipped bit."""


class Nodes(Protocol):
    """Nodes 0 to `count` - 1. Every call returns when its effect has begun."""

    count: int
    cannot: Mapping[str, str]
    """Names of faults that are impossible here, with the reason."""
    other: OtherVersion | None
    """With it the nodes have formed the cluster, if there is one."""

    probed: list[Probed]
    """What a kubelet finds out, where there is one."""

    @property
    def addresses(self) -> Addresses: ...

    def kill(self, *nodes: int) -> None:
        """End them at once (SIGKILL), and wait until they have ended."""

    def terminate(self, node: int) -> None:
        """Stop it as its operator does: it hands its leaderships over and closes its logs."""

    def start(self, node: int) -> None:
        """Start it on the present contents of its directory, if it does not run."""

    def choose_version(self, node: int, *, other: bool) -> None:
        """Its next start is with the other version of Tidelog, or with this one."""

    def pause(self, node: int) -> None: ...

    def resume(self, node: int) -> None: ...

    def cut_off(self, node: int, *others: int) -> None:
        """No packet between it and these nodes; without others: and any other."""

    def silence(self, node: int) -> None:
        """Nothing that it sends arrives at another node; what they send arrives at it."""

    def shape(self, node: int, network: Network) -> None: ...

    def reconnect(self, node: int) -> None:
        """End `cut_off`, `silence` and `shape`."""

    def slow_disk(self, node: int, sync_ms: float) -> None:
        """Each sync takes so much longer; 0: none."""

    def fill_disk(self, node: int, *, full: bool) -> None: ...

    def break_disk(self, node: int, write_errno: int) -> None:
        """Each write fails with this error; 0: none."""

    def data(self, node: int) -> Path:
        """Its log directory, as this process reaches it."""

    def starve(self, node: int, share: float) -> None:
        """It gets this share of one core; 0: as much as it wants."""

    def limit_memory(self, node: int) -> None:
        """What it needs beyond its present memory is refused to it."""

    def lift_memory_limit(self, node: int) -> None: ...

    def set_clock(self, node: int, ahead_ms: int, drift: float = 0) -> None:
        """Its wall clock is so far ahead (negative: behind), and so many seconds further ahead after each second."""

    def expire_certificate(self, node: int, *, expired: bool) -> None:
        """Replace the certificate that it shows to other nodes by one that has expired, or by a valid one."""

    def wait_until(self, reached: Callable[[], object], within_s: float, what: str) -> None:
        """Until `reached()` is true; a TidelogError counts as false. Raises ClusterFailed."""

    def create_topic(self, name: str, partitions: int, replicas: int, **configs: str) -> None:
        """configs: its settings, with `_` for `.`."""

    def wait_healthy(self, within_s: float) -> None:
        """Until every node is ready and every replica in sync. Raises ClusterFailed."""

    def is_running(self, node: int) -> bool: ...

    def ensure_running(self) -> None:
        """Raises ClusterFailed with the ends of their logs if some do not run."""

    def pid(self, node: int) -> int:
        """Its process, as this machine numbers it."""

    def is_ready(self, node: int) -> bool:
        """Whether it answers that it is registered and unfenced."""

    def has_caught_up(self, node: int) -> bool:
        """Whether it answers that it is ready, and that its replicas have been in sync since it was started."""

    def unfenced(self, asked: int) -> set[int]:
        """The nodes that are registered and unfenced, as one of them knows it. Raises TidelogError."""

    def controller(self) -> int:
        """The active controller. Raises TidelogError."""

    def leaders(self, topic: str) -> dict[int, int]:
        """Who leads each partition of a topic. Raises TidelogError."""

    def in_sync(self, topic: str) -> dict[int, list[int]]:
        """The nodes whose replicas of each partition are in sync. Raises TidelogError."""

    def keep_logs(self, directory: Path) -> None:
        """Copy what the nodes have logged to a directory."""

    def close(self) -> None:
        """End all nodes, and all that belongs to them."""
