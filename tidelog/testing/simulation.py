"""A simulated cluster for a user's own coroutines: one seed, virtual time, faults, and the checkers of Tidelog's own
tests.

Coroutines use `tidelog.Producer`, `Consumer` and `Admin` as anywhere. The nodes are the real ones, on a simulated
network and disk; nothing waits: an hour of the world may take a second. A failed test names its seed, and the same seed
plays the same events again. See docs/testing.md.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from types import TracebackType
from typing import Any, ParamSpec, Protocol, Self, TypeVar

from tidelog.cli.server_packages import server_module
from tidelog.records import Record
from tidelog.testing.arguments import node_number, not_negative, refuse_coroutine, topic_settings
from tidelog.testing.unique_names import unique_name

Arguments = ParamSpec("Arguments")
T = TypeVar("T")
Result_co = TypeVar("Result_co", covariant=True)

END_S = 120.0
"""Virtual time for what should end by itself: the longest waits are a transaction's timeout, and a client's."""


class Application(Protocol[Result_co]):
    """A coroutine function in a process of its own."""

    @property
    def done(self) -> bool:
        """Whether the function has ended, in the present process."""

    @property
    def runs(self) -> bool:
        """Whether its process runs, paused or not, and the function has not ended."""

    def result(self) -> Result_co:
        """What the function returned. Raises its error."""

    def kill(self) -> None:
        """End the process at once (SIGKILL): no further line of it runs, no `finally` either."""

    def restart(self) -> None:
        """Kill the process if it runs, and call the function again in another one."""

    def pause(self) -> None:
        """Stop the process where it is (SIGSTOP)."""

    def resume(self) -> None:
        """Continue a paused process."""


class Simulation:
    """A simulated cluster and the applications on its network. Times are virtual seconds.

    `with Simulation(seed) as world:` starts the nodes. Everything then happens inside the calls that run the world
    (`run`, `run_for`, `run_until`, `disturb`, `check_exactly_once`, `check`): they are not awaited, and applications
    do not call them.
    """

    def __init__(self, seed: int, *, nodes: int = 3, voters: int = 1, trace: bool = False) -> None:
        """seed: decides every event; also of the module `random`, until the end. voters: nodes of the metadata quorum,
        with 1 it is on node 0. trace: print each event. Raises ValueError, and UnsupportedVersion if
        `tidelog[testing]` is not installed."""
        if not 1 <= voters <= nodes:
            raise ValueError(f"a world has 1 or more nodes, and from 1 to as many voters: not {nodes} and {voters}")
        module: Any = server_module("testbed.sim.applications", "testing")
        self._world: Any = module.ApplicationWorld(seed, nodes=nodes, voters=voters, show=print if trace else None)
        self.seed = seed

    def __enter__(self) -> Self:
        self._world.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            error.add_note(f"to play it again: Simulation({self.seed}), or pytest --tidelog-seed {self.seed}")
        self._world.__exit__(kind, error, trace)

    @property
    def bootstrap(self) -> str:
        """For `tidelog.Producer`, `Consumer` and `Admin` of applications."""
        bootstrap: str = self._world.bootstrap
        return bootstrap

    @property
    def nodes(self) -> list[int]:
        """The numbers of the nodes."""
        nodes: list[int] = self._world.sim.nodes
        return nodes

    @property
    def now(self) -> float:
        """Virtual seconds since the start of the world."""
        now: float = self._world.sim.loop.time()
        return now

    def digest(self) -> str:
        """A digest of everything that has happened, equal in two runs of one seed."""
        digest: str = self._world.sim.digest()
        return digest

    def last_events(self, count: int = 40) -> str:
        """The last events, a line each: what a failed test shows, too."""
        events: str = self._world.sim.last_events(count)
        return events

    # --- topics ---

    def create_topic(
        self, name: str | None = None, *, partitions: int = 1, replicas: int | None = None, **configs: str
    ) -> str:
        """Create a topic and wait until its replicas are in sync. name: None: one that no other topic has. replicas:
        None: three, or as many as there are nodes; two of them must be in sync, unless `min_insync_replicas` says
        otherwise. configs: its settings, with `_` for `.`. Returns the name. Raises OutOfTime, and the error of the
        request."""
        chosen = unique_name() if name is None else name
        settings = topic_settings(configs)
        required = settings.pop("min.insync.replicas", None)
        self._world.sim.create_topic(
            chosen,
            partitions=partitions,
            replicas=replicas,
            min_insync=None if required is None else int(required),
            configs=settings,
        )
        return chosen

    def records(self, topic: str) -> list[Record]:
        """Everything that is committed in a topic and not part of an open or aborted transaction, by partition and
        offset."""
        records: list[Record] = self._world.records(topic)
        return records

    def leader(self, topic: str, partition: int = 0) -> int:
        """The node that leads a partition; -1 if none does."""
        leader: int = self._world.sim.leader(topic, partition)
        return leader

    # --- applications and time ---

    def start(
        self,
        function: Callable[Arguments, Coroutine[Any, Any, T]],
        *arguments: Arguments.args,
        **named: Arguments.kwargs,
    ) -> Application[T]:
        """Call a coroutine function in a process of its own. It runs while the world does."""
        refuse_coroutine(function)
        application: Application[T] = self._world.start(function, *arguments, **named)
        return application

    def run(self, application: Application[T], within: float = END_S) -> T:
        """Run the world until the application has ended. Returns what its function returned, or raises its error."""
        result: T = self._world.run(application, within)
        return result

    def run_for(self, seconds: float) -> None:
        """Run the world for that time."""
        self._world.sim.run_for(not_negative("seconds", seconds))

    def run_until(self, reached: Callable[[], bool], within: float = END_S, what: str = "") -> None:
        """Run the world until `reached()` is true; it is called after every event. what: for the error if it does not
        become true in time."""
        self._world.run_until(reached, within=within, what=what)

    # --- faults ---

    def _known(self, node: int) -> int:
        return node_number(node, self.nodes)

    def kill(self, node: int) -> None:
        """End the process of a node at once. Its disk and page cache stay."""
        self._world.sim.kill(self._known(node))

    def stop(self, node: int) -> None:
        """Ask a node to stop gracefully."""
        self._world.sim.stop(self._known(node))

    def power_off(self, node: int) -> None:
        """Cut the power of a node's machine: what was not synced may be lost, and nobody is told."""
        self._world.sim.power_off(self._known(node))

    def restart(self, node: int) -> None:
        """Start a node that does not run, on its disk."""
        self._world.sim.restart(self._known(node))

    def pause(self, node: int) -> None:
        """Stop the process of a node where it is."""
        self._world.sim.pause(self._known(node))

    def resume(self, node: int) -> None:
        """Continue a paused process."""
        self._world.sim.resume(self._known(node))

    def cut_off(self, node: int) -> None:
        """Cut a node off from the others, in both directions. Applications still reach it."""
        self._world.sim.disconnect(self._known(node))

    def reconnect(self, node: int) -> None:
        """End `cut_off`."""
        self._world.sim.heal(self._known(node))

    def slow_disk(self, node: int, factor: float) -> None:
        """Let the disk of a node take so many times as long; 1: as before."""
        self._world.sim.slow_disk(self._known(node), not_negative("factor", factor))

    def fill_disk(self, node: int) -> None:
        """Leave no free space on the disk of a node."""
        self._world.sim.fill_disk(self._known(node), 0)

    def free_disk(self, node: int) -> None:
        """End `fill_disk`."""
        self._world.sim.fill_disk(self._known(node), None)
        self._world.sim.restart(self._known(node))

    def lose_messages(self, share: float) -> None:
        """Lose this share of all messages; 0: none, 1: all."""
        if not 0 <= share <= 1:
            raise ValueError(f"share must be from 0 to 1, not {share}")
        self._world.lose_messages(share)

    def disturb(self, seconds: float, *, applications: bool = True) -> None:
        """Run the world for that time, with one random fault after the other: of nodes, disks, links and clocks.
        applications: those that run are killed and started again, and paused, too."""
        self._world.disturb(not_negative("seconds", seconds), applications=applications)

    # --- checks ---

    def check_exactly_once(
        self, source: str, target: str, results: Callable[[Record], Iterable[bytes | None]], within: float = END_S
    ) -> None:
        """Run the world until the target topic has exactly the results of the source topic's records, and fail if one
        is missing after `within` seconds without progress, is there twice, or belongs to no record. Open and aborted
        transactions do not count. results: the values that one record leads to, always the same ones. The target has
        no other records. Raises TypeError for a result that is not the value of a record."""
        self._world.exactly_once(source, target, lambda record: _values(results(record)), within=within)

    def check(self, within: float = END_S) -> None:
        """End the world: applications and faults end. The cluster must recover within that time, with equal replicas,
        and everything acknowledged with `acks="all"` must be committed, where it was said to be, once. Raises
        AssertionError otherwise, and the error of an application that failed."""
        self._world.check(within)


def _values(results: Iterable[object]) -> list[bytes | None]:
    """The values that a record leads to. Bytes would be read as numbers, of which no record is one."""
    found = list(results)
    values = [value for value in found if value is None or isinstance(value, bytes)]
    if isinstance(results, bytes | str) or len(values) < len(found):
        raise TypeError(f"results must return a list of the values of records, each bytes or None, not {results!r}")
    return values
