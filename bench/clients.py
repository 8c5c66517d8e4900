"""Client processes of one system: start them, let several work at once, add up what they did."""

from __future__ import annotations

import json
import os
import selectors
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import psutil

from bench.loads.job import Job
from bench.raw_limits import cpu_seconds
from bench.systems.system import HOME, System, SystemFailed, dies_with_us

ANSWER_SECONDS: Final = 180.0
PIPE_BYTES: Final = 1 << 16


class Client:
    """One client process; see bench/loads/job.py for what is said to it."""

    def __init__(self, system: System, kind: str) -> None:
        command = dies_with_us([system.interpreter(kind), "-m", "bench.loads", kind])
        self._log = (system.directory / f"client-{kind}.log").open("ab")
        self.process = subprocess.Popen(
            command,
            cwd=HOME,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,  # an interrupt at the terminal reaches only the parent
            env={**os.environ, "PYTHONPATH": str(HOME)},
        )
        self._received = b""

    @property
    def has_answer(self) -> bool:
        """Whether an answer is received already."""
        return b"\n" in self._received

    def fileno(self) -> int:
        """Of the pipe that the answers come from."""
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode())
        self.process.stdin.flush()

    def answer(self, seconds: float) -> dict[str, Any]:
        """The next line. Raises SystemFailed if the client failed or says nothing in time."""
        while not self.has_answer:
            if not _readable([self], seconds):
                raise SystemFailed(f"a client said nothing for {seconds:g} s; see {self._log.name}")
            received = os.read(self.fileno(), PIPE_BYTES)
            if not received:
                raise SystemFailed(f"a client ended; see {self._log.name}")
            self._received += received
        line, _, self._received = self._received.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        if "failed" in found:
            raise SystemFailed(str(found["failed"]))
        return found

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()
        self._log.close()


def _readable(clients: Sequence[Client], seconds: float) -> list[Client]:
    with selectors.DefaultSelector() as selector:
        for client in clients:
            selector.register(client, selectors.EVENT_READ)
        return [key.fileobj for key, _ in selector.select(seconds) if isinstance(key.fileobj, Client)]


def next_answer(clients: Sequence[Client], seconds: float) -> tuple[Client, dict[str, Any]] | None:
    """The next answer of any of the clients; None if there is none in time. Raises SystemFailed if one failed."""
    ready = [client for client in clients if client.has_answer] or _readable(clients, seconds)
    return (ready[0], ready[0].answer(ANSWER_SECONDS)) if ready else None


class Work(NamedTuple):
    """What all clients did together."""

    answers: list[dict[str, Any]]
    cpu_clients: float
    """Processor time, seconds."""
    cpu_nodes: float
    others: float
    """Processor time of all other programs meanwhile, in cores."""

    @property
    def records(self) -> int:
        return sum(answer["records"] for answer in self.answers)

    @property
    def seconds(self) -> float:
        return float(max(each["ended"] for each in self.answers) - min(each["began"] for each in self.answers))

    @property
    def rate(self) -> float:
        """Records per second."""
        return self.records / self.seconds

    @property
    def megabytes(self) -> float:
        """MB of values per second."""
        return sum(float(each["bytes"]) for each in self.answers) / self.seconds / 1e6

    @property
    def p99_ms(self) -> float:
        """The median of the clients' 99th percentiles."""
        return statistics.median(float(answer["p99_ms"]) for answer in self.answers)


def fairness(amounts: Sequence[float]) -> float:
    """Jain's index: 1 if all have the same, 1/n if one has all."""
    squares = sum(amount * amount for amount in amounts)
    return sum(amounts) ** 2 / (len(amounts) * squares) if squares else 0.0


class Clients:
    """A pool of client processes of one system. Processes are kept for later jobs."""

    def __init__(self, system: System, others: list[float]) -> None:
        """others: takes the cores that other programs used during each measurement."""
        self.system, self._others = system, others
        self._running: dict[str, list[Client]] = {}

    def take(self, kind: str, count: int) -> list[Client]:
        running = self._running.setdefault(kind, [])
        while len(running) < count:
            running.append(Client(self.system, kind))
        return running[:count]

    def shrink(self, count: int) -> None:
        """End all but `count` of each kind."""
        for running in self._running.values():
            while len(running) > count:
                running.pop().end()

    def end(self) -> None:
        self.shrink(0)

    def do(self, kind: str, job: Job, seconds: float = ANSWER_SECONDS) -> dict[str, Any]:
        """A job without a start signal, by one client. Raises SystemFailed, also if it takes longer than `seconds`."""
        with self._in_step():
            (client,) = self.take(kind, 1)
            client.tell(job.line())
            return client.answer(seconds)

    def work(self, jobs: Sequence[tuple[str, Job]], talk: Callable[[Sequence[Client]], None] | None = None) -> Work:
        """Each job by a client of its kind, all at once. talk: what the parent does meanwhile: it takes all answers but
        the last of each client. Raises SystemFailed."""
        with self._in_step():
            return self._work(jobs, talk)

    @contextmanager
    def _in_step(self) -> Iterator[None]:
        """After a failure the other clients have answers that nobody awaits: all end, and new ones are started."""
        try:
            yield
        except OSError as error:
            self.end()
            raise SystemFailed(f"a client ended: {error}") from error
        except SystemFailed:
            self.end()
            raise

    def _work(self, jobs: Sequence[tuple[str, Job]], talk: Callable[[Sequence[Client]], None] | None) -> Work:
        chosen, used = [], dict.fromkeys((kind for kind, _ in jobs), 0)
        for kind, job in jobs:
            used[kind] += 1
            client = self.take(kind, used[kind])[-1]
            client.tell(job.line())
            chosen.append(client)
        for client in chosen:
            client.answer(ANSWER_SECONDS)
        nodes = [psutil.Process(pid) for pid in self.system.pids]
        clients = [psutil.Process(client.process.pid) for client in chosen]
        before = _used(clients), _used(nodes), _busy(), time.perf_counter()
        for client in chosen:
            client.tell("go\n")
        if talk is not None:
            talk(chosen)
        longest = max(job.seconds for _, job in jobs)
        answers = [client.answer(longest + ANSWER_SECONDS) for client in chosen]
        took = time.perf_counter() - before[3]
        nodes = [node for node in nodes if node.is_running()]
        cpu_clients, cpu_nodes = _used(clients) - before[0], _used(nodes) - before[1]
        others = max(0.0, _busy() - before[2] - cpu_clients - cpu_nodes) / took
        self._others.append(others)
        return Work(answers, cpu_clients, cpu_nodes, others)


@contextmanager
def pool(system: System, others: list[float]) -> Iterator[Clients]:
    """Client processes that end with the block."""
    clients = Clients(system, others)
    try:
        yield clients
    finally:
        clients.end()


def settle(system: System, seconds: float) -> None:
    """Wait until the nodes are quiet, at most `seconds`: what creates and deletes a topic goes on behind it."""
    deadline = time.perf_counter() + seconds
    nodes = [psutil.Process(pid) for pid in system.pids]
    shares: list[float] = []
    while time.perf_counter() < deadline and not is_quiet(shares):
        before, began = _used(nodes), time.perf_counter()
        time.sleep(0.4)
        shares.append((_used(nodes) - before) / (time.perf_counter() - began))


def is_quiet(shares: Sequence[float]) -> bool:
    """Whether nodes that used these shares of a core, one moment after the other, only do what they do when idle: next
    to nothing, or little that no longer falls."""
    if not shares:
        return False
    return shares[-1] < 0.1 or (len(shares) > 1 and 0.8 * shares[-2] <= shares[-1] < 0.7)


def _used(processes: Sequence[psutil.Process]) -> float:
    return sum(cpu_seconds(process) for process in processes)


def _busy() -> float:
    times = psutil.cpu_times()
    return times.user + times.nice + times.system + times.irq + times.softirq
