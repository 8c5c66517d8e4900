"""A cluster of real node processes for tests, with faults on demand.

Invariants: nodes and their data end with the object, or with the process of the test. Calls that name a node take its
number, from 0, and raise ValueError for one that there is not; a fault of a cluster that is closed raises RuntimeError.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self

from tidelog.cli.server_packages import server_module
from tidelog.errors import TidelogError
from tidelog.testing.arguments import node_number, not_negative, refuse_own_settings, topic_settings
from tidelog.testing.unique_names import unique_name

READY_S: Final = 60.0
"""For a busy machine: on idle cores three nodes need less than 3 s."""


class LocalCluster:
    """Nodes 0 to N-1 as processes on 127.0.0.1, each with a data directory of its own in a temporary directory.

    `with LocalCluster() as cluster:` starts the nodes, waits until they are ready, and ends them. `async with` does the
    same. Every method works with and without an event loop, except those that are awaited.
    """

    def __init__(
        self,
        nodes: int = 3,
        *,
        settings: Mapping[str, object] | None = None,
        directory: Path | str | None = None,
    ) -> None:
        """settings: of every node, by the names of docs/configuration.md; they come before those that make a test
        quick (a failed node is noticed after 1.5 s). directory: an empty one for data, configuration and logs, which
        is kept; None: a temporary one. Raises ValueError for a directory with a cluster, InvalidConfig for a setting
        that this class chooses, UnsupportedVersion if the server's packages are not installed."""
        if nodes < 1:
            raise ValueError(f"nodes must be 1 or more, not {nodes}")
        if directory is not None and any(Path(directory).glob("node-*")):
            raise ValueError(f"{directory} has a cluster already: name an empty directory, or none")
        refuse_own_settings(settings)
        module: Any = server_module("testbed.faulty_cluster", "testing")
        home = Path(tempfile.mkdtemp(prefix="tidelog-")) if directory is None else Path(directory)
        remove = shutil.rmtree if directory is None else _keep
        self._removal = weakref.finalize(self, remove, home, ignore_errors=True)
        """Also for an object that is never used, or not closed."""
        self._cluster: Any = module.FaultyCluster(home, nodes, settings=settings)
        self._is_settled = False
        """Whether the cluster was healthy after the last fault."""

    # --- lifecycle ---

    def __enter__(self) -> Self:
        self._refuse_if_closed()
        try:
            self._cluster.start()
            self.wait_healthy()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Kill all nodes, and remove the temporary directory. Idempotent."""
        self._cluster.close()
        self._removal()

    def _refuse_if_closed(self) -> None:
        if not self._removal.alive:
            raise RuntimeError("this cluster is closed: its nodes and data are gone; make another LocalCluster")

    # --- addresses ---

    @property
    def bootstrap(self) -> str:
        """For `tidelog.Producer`, `Consumer` and `Admin`: the addresses of all nodes."""
        bootstrap: str = self._cluster.bootstrap
        return bootstrap

    @property
    def kafka_bootstrap(self) -> str:
        """The same for clients of Kafka."""
        bootstrap: str = self._cluster.kafka_bootstrap
        return bootstrap

    @property
    def nodes(self) -> range:
        """The numbers of the nodes."""
        return range(len(self._cluster.nodes))

    @property
    def directory(self) -> Path:
        """The directory with a directory `node-N` for each node."""
        directory: Path = self._cluster.directory
        return directory

    def log_tail(self, node: int, lines: int = 15) -> str:
        """The last lines that a node has logged."""
        tail: str = self._cluster.nodes[self._known(node)].log_tail(lines)
        return tail

    def _known(self, node: int) -> int:
        self._refuse_if_closed()
        return node_number(node, self.nodes)

    # --- topics ---

    def create_topic(
        self, name: str | None = None, *, partitions: int = 1, replicas: int | None = None, **configs: str
    ) -> str:
        """Create a topic and wait until all its replicas are in sync. name: None: one that no other test has. replicas:
        None: three, or as many as there are nodes. configs: its settings, with `_` for `.` (`retention_ms="1000"`).
        Returns the name. Raises TimeoutError, and the error of the request."""
        chosen = unique_name() if name is None else name
        count = min(3, len(self.nodes)) if replicas is None else replicas
        self._refuse_if_closed()
        with self._in_time():
            self._cluster.create_topic(chosen, partitions, count, **topic_settings(configs))
        return chosen

    def leader(self, topic: str, partition: int = 0) -> int:
        """The node that leads a partition; -1 if none does."""
        for node in self._cluster.nodes:
            if node.is_expected:
                with contextlib.suppress(TidelogError):
                    (found,) = self._cluster.metadata(node.node_id, topic).topics
                    return next((each.leader for each in found.partitions if each.partition == partition), -1)
        return -1

    # --- faults ---

    def _faulty(self, node: int) -> int:
        self._is_settled = False  # also for the end of a fault: a node that was started is not ready yet
        return self._known(node)

    def kill(self, node: int) -> None:
        """End a process at once (SIGKILL). Its data stay."""
        self._cluster.kill(self._faulty(node))

    def stop(self, node: int) -> None:
        """Stop a node gracefully: it hands its leaderships over and closes its logs. Raises TimeoutError if it does not
        end, which kills it."""
        with self._in_time():
            self._cluster.stop_node(self._faulty(node))

    def start(self, node: int) -> None:
        """Start a node that was killed or stopped, on its data."""
        self._cluster.kill(self._faulty(node))  # it may have ended by itself
        self._cluster.start_node(node)

    def restart(self, node: int) -> None:
        """Stop a node gracefully and start it again."""
        self.stop(node)
        self.start(node)

    def pause(self, node: int) -> None:
        """Stop a process where it is (SIGSTOP): its connections stay open, and nothing answers."""
        self._cluster.pause(self._faulty(node))

    def resume(self, node: int) -> None:
        """Continue a paused process."""
        self._cluster.resume(self._faulty(node))

    def cut_off(self, node: int, *others: int) -> None:
        """Cut a node off from these nodes, or from all, in both directions. Clients still reach it."""
        self._cluster.cut_off(self._faulty(node), *map(self._known, others))

    def reconnect(self, node: int) -> None:
        """End every `cut_off` of a node; what was held back arrives now."""
        self._cluster.reconnect(self._faulty(node))

    def slow_disk(self, node: int, sync_ms: float) -> None:
        """Let each sync on the disk of a node take so many milliseconds more; 0: none."""
        self._cluster.slow_disk(self._faulty(node), not_negative("sync_ms", sync_ms))

    def fill_disk(self, node: int) -> None:
        """Leave no free space on the disk of a node. What is there can be read."""
        self._cluster.fill_disk(self._faulty(node))

    def free_disk(self, node: int) -> None:
        """End `fill_disk`."""
        self._cluster.fill_disk(self._faulty(node), full=False)

    def heal(self) -> None:
        """End all faults and start every node that does not run; then wait with `healthy` or `wait_healthy`."""
        self._refuse_if_closed()
        self._is_settled = False
        self._cluster.heal()

    def settle(self) -> None:
        """`heal` and `wait_healthy`, if a fault has begun or ended since the cluster was healthy."""
        if self.is_disturbed:
            self.heal()
        if not self._is_settled:
            self.wait_healthy()

    @property
    def is_disturbed(self) -> bool:
        """Whether a fault lasts, or a node does not run."""
        disturbed: bool = self._cluster.is_disturbed
        return disturbed

    # --- waiting ---

    async def healthy(self, within: float = READY_S) -> None:
        """Return once all nodes that should answer are ready and agree that they are the cluster, every partition has a
        leader and, if all nodes run, every replica is in sync. Nodes that are paused or cut off need not answer.
        within: seconds. Raises TimeoutError with the last lines of each node's log."""
        await asyncio.to_thread(self.wait_healthy, within)

    def wait_healthy(self, within: float = READY_S) -> None:
        """The same, without an event loop."""
        self._refuse_if_closed()
        with self._in_time():
            self._cluster.wait_healthy(within)
        self._is_settled = True

    @contextlib.contextmanager
    def _in_time(self) -> Iterator[None]:
        """Raises TimeoutError for what the cluster does not reach, also because a node has ended."""
        try:
            yield
        except server_module("node.process.local_cluster", "testing").ClusterFailed as failed:
            raise TimeoutError(str(failed)) from failed


def _keep(home: Path, *, ignore_errors: bool) -> None:
    """No effect: the directory of a user stays."""
