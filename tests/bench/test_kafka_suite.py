"""The suite `kafka`: which client is compared with which, and the targets, without processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bench import suite_kafka
from bench.clients import Work
from bench.cluster_loads import Idle
from bench.figure import Better, Figure, Run
from bench.loads.job import Job
from bench.systems.kafka import Kafka
from bench.systems.system import PeerMissing
from bench.systems.tidelog_by_kafka import OWN, TidelogByKafka
from tests.bench.fake_system import FakeSystem

RATES = {"Tidelog": 3_000.0, "Kafka": 2_000.0}
"""Records per second of librdkafka; aiokafka has a tenth, the tools of Java twice as many, our client four times."""
SHARES = {"librdkafka": 1.0, "aiokafka": 0.1, OWN: 4.0}


class Tools:
    def __init__(self, rate: float) -> None:
        self._rate = 2 * rate

    def produce(self, *_: object) -> float:
        return self._rate

    def consume(self, *_: object) -> float:
        return self._rate


class Answers:
    """Clients that have done their work at once."""

    def __init__(self, name: str) -> None:
        self._name = name

    def do(self, kind: str, job: Job) -> dict[str, Any]:
        return {}

    def work(self, jobs: Sequence[tuple[str, Job]]) -> Work:
        kind, job = jobs[0]
        if job.do == "latencies":
            millis = 1.0 if self._name == "Tidelog" else 2.0
            return Work([{"latencies_ms": [millis] * 10}], 0.0, 0.0, 0.0)
        records = RATES[self._name] * SHARES[kind]
        return Work([{"records": records, "bytes": 1, "began": 0.0, "ended": 1.0} for _ in jobs], 0.1, 0.1, 0.0)


def lane_of(kind: type[Any]) -> type[Any]:
    """This system without processes: its own name and clients, fast answers."""

    class Fake(FakeSystem, kind):  # type: ignore[misc]
        version, bootstrap, pids = "1", "", ()

        def __init__(self, directory: Path) -> None:
            self.name, self.clients, self.java = kind.name, kind.clients, Tools(RATES[kind.name])

        def start(self) -> None:
            pass

        def stop(self) -> None:
            pass

    return Fake


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Figure]:
    @contextmanager
    def pool(system: Any, _others: list[float]) -> Iterator[Answers]:
        yield Answers(system.name)

    for kind in (TidelogByKafka, Kafka):
        monkeypatch.setattr(suite_kafka, kind.__name__, lane_of(kind))
    monkeypatch.setattr(suite_kafka, "pool", pool)
    monkeypatch.setattr(
        suite_kafka, "cost", lambda lane, _seconds: Idle(0.0, 90.0 if lane.system.name == "Tidelog" else 300.0)
    )
    monkeypatch.setattr("bench.cluster_contest.settle", lambda system, seconds: None)
    run = Run(tmp_path, quick=True, say=lambda _: None)
    return {figure.figure: figure for figure in suite_kafka.figures(run)}


def test_each_client_is_compared_with_itself(figures: dict[str, Figure]) -> None:
    for client, share in (("librdkafka", 1.0), ("aiokafka", 0.1), ("Java", 2.0)):
        found = figures[f"produce 100 B, no keys, 6 partitions, 1 client, {client} / Kafka"]
        assert found.value == pytest.approx(3_000 * share)
        assert found.baseline == pytest.approx(2_000 * share)
        read = figures[f"consume 1 KiB, {client} / Kafka"]
        assert read.ratio == pytest.approx(1.5)
        assert read.target == 1.0
    own = figures["produce 1 KiB, keyed, librdkafka through the listener / Tidelog's client by gRPC"]
    assert (own.ratio, own.target) == (0.25, None)


def test_the_targets_are_those_that_kafka_sets(figures: dict[str, Figure]) -> None:
    produced = {name: figure.target for name, figure in figures.items() if name.startswith("produce 100 B, ")}
    assert {target for name, target in produced.items() if "300 partitions" in name and "keyed" in name} == {1.5}
    assert {target for name, target in produced.items() if "6 partitions" in name} == {1.0}
    less = {name: figure.target for name, figure in figures.items() if figure.better is Better.LESS and figure.target}
    assert less["one record at a time, librdkafka, p99 / Kafka"] == 1.0
    assert less["memory of an idle node, 300 partitions / Kafka"] == 0.25
    assert not figures["memory of an idle node, 300 partitions / Kafka"].met
    assert (
        less["processor of the nodes per batch, page cache, 6 partitions, warm / Kafka, librdkafka, page cache"] == 1.0
    )


def test_more_than_300_partitions_are_left_to_the_cluster_suite(figures: dict[str, Figure]) -> None:
    assert not [name for name in figures if "1,500 partitions" in name]


def test_without_kafka_nothing_is_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def missing(directory: Path) -> None:
        raise PeerMissing("its jars are not fetched")

    said: list[str] = []
    monkeypatch.setattr(suite_kafka, "TidelogByKafka", missing)
    assert list(suite_kafka.figures(Run(tmp_path, quick=True, say=said.append))) == []
    assert said == ["the suite kafka is left out: its jars are not fetched"]
