"""Applications in a simulated world: a user's coroutines, with real clients of Tidelog, as processes of the cluster's
network.

An application makes `tidelog.Producer`, `Consumer` and `Admin` as anywhere: their network, clock and randomness are
those of its process (tidelog/client/surroundings.py). Invariants: one seed decides every event of the cluster, of the
network and of the applications' loop; what a process reads from the machine itself (time, files, sets of strings) is
no part of that. Not here: the rules of the cluster (checkers.py), what applications were told (acknowledgements.py).
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Final, Self

from testbed.sim import client_faults
from testbed.sim.acknowledgements import Acknowledgements
from testbed.sim.clock import SimClock
from testbed.sim.healing import is_healed, is_last_record, what_is_missing
from testbed.sim.ledger import Ledger, Violation
from testbed.sim.loop import Deadlock, OutOfTime, SimulationError
from testbed.sim.machine import coordinator_settings, endpoint_of
from testbed.sim.network import LinkFaults
from testbed.sim.observed_transport import ObservedTransport
from testbed.sim.process import ProcessState
from testbed.sim.random_faults import disturb
from testbed.sim.watched_transport import WatchedTransport
from testbed.sim.workload import Client
from testbed.sim.world import Simulation
from tidelog.client.surroundings import SURROUNDINGS, Surroundings
from tidelog.records.v2.record import Record

Function = Callable[..., Coroutine[Any, Any, Any]]
Results = Callable[[Record], Iterable[bytes | None]]
"""The values that a pipeline writes for a record."""

LOOK_S: Final = 0.25
"""Virtual time between two looks at all results."""


class ApplicationFailed(SimulationError):
    """A coroutine of an application raised an error."""


class Application:
    """A process that runs one coroutine function. A restart calls the function again, in a new process."""

    def __init__(
        self, world: ApplicationWorld, function: Function, arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> None:
        self._world, self._function, self._arguments, self._named = world, function, arguments, named
        self.name = getattr(function, "__name__", "application")
        self._client: Client | None = None
        self._outcome: Any = None
        self.failure: Exception | asyncio.CancelledError | None = None
        self.done = False
        """Whether the function has returned or raised, in the present process."""

    def start(self) -> None:
        """Start a process that calls the function."""
        client = self._client = self._world.new_client()
        self.failure, self.done = None, False
        self._world.sim.note(f"{client.process.name} is {self.name}")
        client.start(self._run(), self.name)

    async def _run(self) -> None:
        try:
            self._outcome = await self._function(*self._arguments, **self._named)
        except (Exception, asyncio.CancelledError) as failure:  # noqa: BLE001 - raised by `result`, and at the end of the world
            self.failure = failure
        self.done = True

    @property
    def runs(self) -> bool:
        """Whether its process runs, paused or not, and its function has not ended."""
        return self._client is not None and self._client.process.alive and not self.done

    def result(self) -> Any:
        """What the function returned. Raises its error; ApplicationFailed if it has not ended."""
        if self.failure is not None:
            raise self.failure
        if not self.done:
            raise ApplicationFailed(f"{self.name} has not ended")
        return self._outcome

    def kill(self) -> None:
        """End the process at once (SIGKILL): no further line of it runs, and its connections break."""
        if self._client is not None:
            client_faults.kill_client(self._world.sim, self._client)

    def restart(self) -> None:
        """Kill the process if it runs, and start another one."""
        self.kill()
        self.start()

    def pause(self) -> None:
        """Stop the process where it is (SIGSTOP)."""
        if self._client is not None:
            client_faults.pause_client(self._world.sim, self._client)

    def resume(self) -> None:
        """Continue a paused process."""
        if self._client is not None and self._client.process.state is ProcessState.PAUSED:
            client_faults.resume_client(self._world.sim, self._client)


class ApplicationWorld:
    """A cluster and its applications. A context manager."""

    def __init__(
        self, seed: int, *, nodes: int = 3, voters: int = 1, show: Callable[[str], None] | None = None
    ) -> None:
        """voters: nodes of the metadata quorum; with 1 it is on node 0. show: called with each event as a line."""
        self.seed, self._nodes = seed, nodes
        self.sim = Simulation(seed, voters=voters, show=show)
        self.applications: list[Application] = []
        self.acknowledgements = Acknowledgements(self.sim.checkers.ledgers, self.sim.loop.call_soon)
        self._is_over = False
        self._restored = ExitStack()

    def __enter__(self) -> Self:
        self.sim.__enter__()
        self._restored.callback(random.setstate, random.getstate())
        random.seed(self.seed)
        self.sim.checkers.has_applications = True
        try:
            self.sim.start(self._nodes, min_insync=min(2, self._nodes), topics=(), coordinators=coordinator_settings())
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restored.close()
        self.sim.__exit__(kind, error, trace)

    @property
    def bootstrap(self) -> str:
        """The addresses of all nodes, for the clients of applications."""
        return ",".join(str(endpoint_of(node)) for node in self.sim.nodes)

    # --- applications ---

    def start(self, function: Function, *arguments: Any, **named: Any) -> Application:
        """Start an application in a process of its own."""
        application = Application(self, function, arguments, named)
        self.applications.append(application)
        application.start()
        return application

    def new_client(self) -> Client:
        """The process of an application."""
        client, sim = self.sim.client(), self.sim
        name = client.process.name
        observed = ObservedTransport(
            client.transport, lambda batch, offset: self.acknowledgements.add(name, batch, offset)
        )
        transport = WatchedTransport(observed, sim.loop, sim.coordination, name=name)
        client.process.give(SURROUNDINGS, Surroundings(transport, SimClock(sim.loop), client.rng))
        return client

    def run(self, application: Application, within: float) -> Any:
        """Run the world until the application has ended. Returns its result."""
        self.run_until(lambda: application.done, within=within, what=lambda: f"{application.name} ends")
        return application.result()

    def run_until(self, reached: Callable[[], bool], *, within: float, what: str | Callable[[], str] = "") -> None:
        """Run the world until `reached()` is true. Raises the error of an application if that does not become true."""
        try:
            self.sim.run_until(reached, within=within, what=what)
        except (OutOfTime, Deadlock) as in_vain:
            self._raise_failure(in_vain)
            raise

    def disturb(self, seconds: float, *, applications: bool = True) -> None:
        """Run the world for that time, with one fault after the other. applications: they are killed and paused,
        too."""
        disturb(self, seconds, with_applications=applications)

    def lose_messages(self, share: float) -> None:
        """Lose this share of all messages between machines."""
        self.sim.network.set_faults(LinkFaults(loss=share))

    # --- topics ---

    def ledgers(self, topic: str) -> list[Ledger]:
        """The committed logs of the partitions of a topic."""
        return [self.sim.ledger(topic, int(state.partition)) for state in self.sim.topic(topic).partitions]

    def records(self, topic: str) -> list[Record]:
        """Everything of applications that a consumer with read_committed can receive from a topic now, by partition and
        offset."""
        records = (record for ledger in self.ledgers(topic) for record in ledger.decided_records())
        return [record for record in records if not is_last_record(record)]

    # --- the end ---

    def exactly_once(self, source: str, target: str, results: Results, *, within: float) -> None:
        """Run the world until each decided record of the source topic has its results in the target topic, and fail if
        one is missing, there twice, or of no record. within: the virtual time without progress."""
        if self._is_over:
            raise ApplicationFailed("the world is over: compare results before its end is checked")
        before, waited = -1, 0.0
        while True:
            wanted = Counter(value for record in self.records(source) for value in results(record))
            found = Counter(record.value for record in self.records(target))
            missing = (wanted - found).total()
            if missing == 0:
                break
            waited = waited + LOOK_S if missing == before else 0.0
            before = missing
            if waited > within:
                first = next(iter((wanted - found).elements()))
                in_vain = OutOfTime(f"{missing} results of {source} are not in {target}, one is {first!r}")
                self._raise_failure(in_vain)
                raise in_vain
            self.sim.run_for(LOOK_S)
        if more := found - wanted:
            value, count = next(iter(more.items()))
            raise Violation(
                f"{target}: {count + wanted[value]} committed results {value!r}, where the records of {source} have "
                f"{wanted[value]}"
            )

    def check(self, within: float) -> None:
        """End the world: all faults and applications end, the cluster must recover, and nothing that was acknowledged
        may be lost. Raises the error of an application whose result nobody has asked for."""
        self._is_over = True
        for application in self.applications:
            application.resume()
            application.kill()
        self.sim.heal_everything()
        self.sim.run_until(
            lambda: is_healed(self.sim) and not self._open(),
            within=within,
            what=lambda: f"the cluster recovers: {self._open() or what_is_missing(self.sim)}",
        )
        self.acknowledgements.judge_all()
        self.sim.must_heal()
        self._raise_failure()

    def _raise_failure(self, in_vain: SimulationError | None = None) -> None:
        """Raise the error of an application that has failed, if one has. in_vain: the wait that its work has not
        ended."""
        for each in self.applications:
            if each.failure is not None:
                after = "" if in_vain is None else f"; {in_vain}"
                raise ApplicationFailed(f"{each.name} failed: {each.failure!r}{after}") from each.failure

    def _open(self) -> list[str]:
        """The partitions with an open transaction: the coordinator aborts it when its time is over."""
        return [
            f"{each.name} is undecided from {each.stable} on"
            for key, each in self.sim.checkers.ledgers.items()
            if self.sim.image().partition(key) is not None and not each.lossy and each.stable < each.end
        ]
