"""The large group of the suite `coordinators`: who has what, as several client processes say it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench import clients, large_group
from bench.clients import Client, Work, next_answer
from bench.loads.job import Job
from bench.systems.system import SystemFailed


class FakeProcess:
    """A client process that answers what it is given, and more once it is told something."""

    def __init__(self, pid: int, *answers: dict[str, Any], then: dict[str, list[dict[str, Any]]] | None = None) -> None:
        self.process = SimpleNamespace(pid=pid)
        self.told: list[str] = []
        self._answers, self._then = list(answers), then or {}
        self._pipe = os.pipe()

    @property
    def has_answer(self) -> bool:
        return bool(self._answers)

    def fileno(self) -> int:
        return self._pipe[0]

    def tell(self, line: str) -> None:
        self.told.append(line.strip())
        self._answers += self._then.get(line.strip(), [])

    def answer(self, seconds: float) -> dict[str, Any]:
        return self._answers.pop(0)

    def close(self) -> None:
        for end in self._pipe:
            os.close(end)


class FakePool:
    """Two processes of members, and one that describes the group."""

    def __init__(self, *processes: FakeProcess) -> None:
        self.processes = processes
        self.jobs: list[Job] = []

    def take(self, kind: str, count: int) -> list[FakeProcess]:
        return list(self.processes[:count])

    def work(self, jobs: list[tuple[str, Job]], talk: Any) -> Work:
        self.jobs = [job for _, job in jobs]
        talk(self.processes[: len(jobs)])
        return Work([{"lost": 0}, {"lost": 2}], cpu_clients=1.0, cpu_nodes=2.0, others=0.0)


def has(at: float, **members: list[int]) -> dict[str, Any]:
    return {"at": at, "has": members}


JOB = Job("create_topic", "a:1", "t", partitions=5, seconds=0.05, consumers=3)


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakePool]:
    """The first member has all, then gives up what the others get. When it leaves, another one gets its partitions."""
    now = 100.0
    monkeypatch.setattr(large_group, "time", SimpleNamespace(perf_counter=lambda: now))
    leaves = [has(now + 40, **{"0": []}), has(now + 41, **{"1": [0, 1, 2]})]
    joins = has(now + 10, **{"0": [0, 1, 2, 3]}), has(now + 11, **{"0": [0, 2]}), has(now + 20, **{"1": [1]})
    first = FakeProcess(1, *joins, then={"leave": leaves})
    second = FakeProcess(2, has(now + 15, **{"0": [3, 4]}))
    pool = FakePool(first, second, FakeProcess(3, {"at": now + 30}))
    yield pool
    for process in pool.processes:
        process.close()


def test_a_group_is_shared_once_all_processes_say_so(pool: FakePool) -> None:
    found = large_group.rebalance(pool, "fake", JOB, processes=2)  # type: ignore[arg-type]
    assert [job.consumers for job in pool.jobs] == [2, 1], "the members are divided among the processes"
    assert len({job.group for job in pool.jobs}) == 1 != len(pool.jobs[0].group)
    assert (round(found.joined), round(found.stable), round(found.left)) == (20, 30, 41)
    assert found.lost == 2
    assert [process.told for process in pool.processes[:2]] == [["leave", "end"], ["end"]]
    (described,) = pool.processes[2].told
    assert Job.parse(described).do == "wait_stable"


def test_a_partition_with_two_owners_is_not_shared(pool: FakePool) -> None:
    pool.processes[1]._answers[:] = [has(0.0, **{"0": [2, 3]})]
    with pytest.raises(SystemFailed, match="3 members are to share: 1 members with 1, 2 members with 2, of 5"):
        large_group.rebalance(pool, "fake", JOB, processes=2)  # type: ignore[arg-type]


def test_answers_that_arrive_together_are_all_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Goal: no answer stays in a buffer while the next one is awaited."""
    script = r"import sys; sys.stdout.write('{\"at\": 1}\n{\"at\": 2}\n'); sys.stdout.flush(); sys.stdin.readline()"
    monkeypatch.setattr(clients, "dies_with_us", lambda _command: [sys.executable, "-c", script])
    system: Any = SimpleNamespace(interpreter=lambda _kind: sys.executable, directory=tmp_path)
    client = Client(system, "fake")
    try:
        found = [next_answer([client], 30), next_answer([client], 0)]
        assert [each and each[1] for each in found] == [{"at": 1}, {"at": 2}]
        assert next_answer([client], 0) is None
        client.tell("end\n")
        with pytest.raises(SystemFailed, match="a client ended"):
            next_answer([client], 30)
    finally:
        client.end()
