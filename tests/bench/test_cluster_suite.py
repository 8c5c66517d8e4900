"""The cluster suite without nodes: systems take turns, a missing peer is left out, only acknowledged records count."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Self

import psutil
import pytest

from bench import __main__ as command
from bench import clients, suite_cluster, suites
from bench.clients import fairness, is_quiet
from bench.cluster_contest import QUICK, Contest, Lane, compare
from bench.cluster_parts import PARTS
from bench.cluster_parts import PEERS as PEER_NAMES
from bench.figure import Figure, Run
from bench.loads import __main__ as client_process
from bench.loads import job as load_job
from bench.loads.job import STRIDE, Count, Gate, Job, Pace
from bench.systems import PEERS
from bench.systems.java_tools import LIBS, consumed, produced
from bench.systems.kafka import Kafka
from bench.systems.system import Children, PeerMissing, System, SystemFailed
from tests.bench.fake_system import FakeClients, FakeSystem


def contest_of(*systems: FakeSystem, said: list[str] | None = None) -> Contest:
    lanes: list[Any] = [Lane(system, FakeClients()) for system in systems]  # type: ignore[arg-type]
    heard = said if said is not None else []
    return Contest(Run(Path(), say=heard.append), QUICK, lanes)


# --- taking turns ---


def test_systems_take_turns_and_the_order_rotates() -> None:
    contest = contest_of(FakeSystem("Tidelog"), FakeSystem("Kafka"))
    order: list[str] = []

    def measure(lane: Lane) -> float:
        order.append(lane.system.name)
        return 1.0

    for _ in range(3):
        assert list(contest.each(6, measure)) == ["Tidelog", "Kafka"]
    assert order == ["Tidelog", "Kafka", "Kafka", "Tidelog", "Tidelog", "Kafka"]


def test_a_peer_that_fails_is_left_out_of_one_figure() -> None:
    said: list[str] = []
    contest = contest_of(FakeSystem("Tidelog"), FakeSystem("Kafka"), said=said)

    def measure(lane: Lane) -> float:
        if lane.system.name == "Kafka":
            raise SystemFailed("it ended:\nout of memory")
        return 1.0

    assert contest.each(6, measure) == {"Tidelog": 1.0}
    assert "  Kafka is left out of this figure: it ended: out of memory" in said


def test_a_failure_of_tidelog_leaves_the_figure_out_and_is_kept() -> None:
    def measure(lane: Lane) -> float:
        raise SystemFailed("it ended")

    def figures() -> Iterator[Figure]:
        yield Figure("before", 1.0, "s")
        contest.each(6, measure)

    said: list[str] = []
    contest = contest_of(FakeSystem("Tidelog"), said=said)
    assert [figure.figure for figure in contest.unless_failed(figures())] == ["before"]
    assert contest.failures == ["it ended"]
    assert said == ["  left out, because Tidelog failed: it ended"]


def test_a_system_that_takes_fewer_partitions_is_not_asked() -> None:
    small = FakeSystem("RabbitMQ")
    small.partitions_max = 10
    assert list(contest_of(FakeSystem("Tidelog"), small).each(300, lambda _: 1.0)) == ["Tidelog"]


def test_a_missing_peer_is_reported_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Started(FakeSystem):
        def __init__(self, directory: Path) -> None:
            super().__init__("Tidelog")

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    def missing(directory: Path) -> System:
        raise PeerMissing("no nats-server; Debian: apt install nats-server")

    monkeypatch.setattr(suite_cluster, "Tidelog", Started)
    monkeypatch.setattr(suite_cluster, "PEERS", {"jetstream": missing})
    monkeypatch.setattr(Contest, "warm_up", lambda contest: None)
    monkeypatch.setattr(suite_cluster, "_MEASURED", {"idle": lambda contest: iter([Figure("idle", 1.0, "MiB")])})
    said: list[str] = []
    run = Run(tmp_path, peers=("jetstream",), only=("idle",), say=said.append)
    assert [figure.figure for figure in suite_cluster.figures(run)] == ["idle"]
    assert said == ["jetstream is left out: no nats-server; Debian: apt install nats-server"]
    assert run.versions == {"Tidelog": "1"}


def test_a_run_in_which_tidelog_failed_ends_with_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def failing(contest: Contest) -> Iterator[Figure]:
        yield Figure("idle", 1.0, "MiB")
        raise SystemFailed("no answer")

    monkeypatch.setattr(suite_cluster, "_lanes", lambda run, stack: iter([]))
    monkeypatch.setattr(Contest, "warm_up", lambda contest: None)
    monkeypatch.setattr(suite_cluster, "_MEASURED", {"idle": failing, "latency": lambda contest: iter([])})
    found: list[str] = []
    with pytest.raises(SystemFailed, match="1 measurements of Tidelog failed, the first: no answer"):
        found.extend(figure.figure for figure in suite_cluster.figures(Run(tmp_path, only=("idle", "latency"))))
    assert found == ["idle"]


def test_the_options_name_what_the_suite_has() -> None:
    assert tuple(PEERS) == PEER_NAMES
    assert {*suite_cluster._MEASURED, "limits"} == set(PARTS)


# --- figures ---


def test_each_peer_is_a_baseline_and_only_one_has_the_target() -> None:
    peers = {"Kafka, librdkafka, page cache": 50.0, "Kafka, aiokafka, page cache": 10.0, "RabbitMQ, rstream": 0.0}
    first, second = compare("produce", 100.0, "records/s", peers, target=1.5)
    assert (first.figure, first.ratio, first.met) == ("produce / Kafka, librdkafka, page cache", 2.0, True)
    assert (second.ratio, second.target) == (10.0, None)


def test_without_peers_there_is_a_value_alone() -> None:
    (figure,) = compare("produce", 100.0, "records/s", {}, target=1.5)
    assert (figure.figure, figure.baseline, figure.target) == ("produce", None, None)


def test_fairness_is_one_for_equal_shares() -> None:
    assert fairness([5, 5, 5, 5]) == 1
    assert fairness([20, 0, 0, 0]) == 0.25
    assert fairness([0, 0]) == 0


def test_nodes_are_quiet_when_they_use_next_to_nothing_or_no_longer_less() -> None:
    assert not is_quiet([])
    assert is_quiet([0.05])
    assert not is_quiet([0.5])
    assert not is_quiet([0.9, 0.5])  # it falls
    assert is_quiet([0.9, 0.5, 0.5])
    assert not is_quiet([1.5, 1.5])  # busy


# --- one client process ---


class Clock:
    """`time` of bench/loads/job.py, moved by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(load_job, "time", SimpleNamespace(perf_counter=lambda: self.now))


def test_only_what_was_acknowledged_in_time_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    count = Count()
    count.begin()
    clock.now += 0.010
    count.acknowledged(sent_at=100.0)
    count.acknowledged(sent_at=99.0)  # of the warm-up: a record, but not a latency
    count.end()
    count.acknowledged(sent_at=100.0)  # too late
    result = count.result(value_bytes=100)
    assert result["records"] == 2 * STRIDE
    assert result["p99_ms"] == pytest.approx(10)


def test_a_record_that_failed_fails_the_measurement() -> None:
    count = Count()
    count.failure("not enough replicas")
    with pytest.raises(RuntimeError, match="not enough replicas"):
        count.result(value_bytes=100)


def test_a_paced_load_sends_whole_bursts_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    pace = Pace(rate=1_000, seconds=1, burst=50)
    clock.now += 0.070
    assert pace.due() == 50
    clock.now += 0.040
    assert pace.due() == 50
    assert pace.due() == 0
    clock.now += 1
    assert pace.due() == -1


def test_a_client_process_waits_for_the_start_and_reports_failures(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    load = ModuleType("bench.loads.fake_load")

    async def produce(job: Job, gate: Gate) -> dict[str, Any]:
        await gate.wait_async()
        return {"records": job.partitions}

    def consume(job: Job, gate: Gate) -> dict[str, Any]:
        raise OSError("nobody listens")

    load.produce, load.consume = produce, consume  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, load.__name__, load)
    jobs = Job("produce", "a:1", partitions=3).line() + "go\n" + Job("consume", "a:1").line()
    monkeypatch.setattr(sys, "stdin", io.StringIO(jobs))
    assert client_process.main("fake") == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert answers == [{"ready": True}, {"records": 3}, {"failed": "OSError: nobody listens"}]


def test_after_a_failure_all_clients_are_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: no answer of a failed measurement is taken for one of the next."""
    started: list[FakeClient] = []

    class FakeClient:
        process = SimpleNamespace(pid=os.getpid())

        def __init__(self, system: System, kind: str) -> None:
            self.ended, self.said = False, [] if started else [SystemFailed("refused")]
            started.append(self)

        def tell(self, line: str) -> None:
            pass

        def answer(self, seconds: float) -> dict[str, Any]:
            for error in self.said:
                raise error
            return {"records": 1, "began": 0.0, "ended": 1.0}

        def end(self) -> None:
            self.ended = True

    monkeypatch.setattr(clients, "Client", FakeClient)
    system: Any = SimpleNamespace(pids=[])
    pool = clients.Clients(system, [])
    jobs = [("fake", Job("produce", "a:1"))] * 2
    with pytest.raises(SystemFailed, match="refused"):
        pool.work(jobs)
    assert [client.ended for client in started] == [True, True]
    assert pool.work(jobs).records == 2
    assert [client.ended for client in started[2:]] == [False, False]


# --- peers ---


def test_kafka_without_its_jars_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.touch()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv(LIBS, str(tmp_path / "none"))
    with pytest.raises(PeerMissing, match="make bench PEER=kafka"):
        Kafka(tmp_path / "kafka")


def test_what_kafkas_tools_print_is_read() -> None:
    """Lines as Kafka 4.1 prints them."""
    sent = (
        "499 records sent, 99.8 records/sec (0.01 MB/sec), 3.2 ms avg latency, 80.0 ms max latency.\n"
        "1000000 records sent, 371000.5 records/sec (35.38 MB/sec), 50.61 ms avg latency, 400.00 ms max latency.\n"
    )
    assert produced(sent) == 371000.5
    read = (
        "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, "
        "fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec\n"
        "2026-01-01 00:00:00:000, 2026-01-01 00:00:05:000, 95.3674, 19.0735, 1000000, 200000.0, 3500, 1500, 63.5, "
        "666666.6\n"
    )
    assert consumed(read) == 666666.6
    with pytest.raises(SystemFailed):
        consumed("WARN no records")


def test_processes_end_with_their_system_also_after_an_exception(tmp_path: Path) -> None:
    pids: list[int] = []

    class Sleeper(System):
        name, clients, version, bootstrap, pids = "Sleeper", ("none",), "1", "", []

        def start(self) -> None:
            pause = [sys.executable, "-c", "import signal; signal.pause()"]
            deaf = "import signal; signal.signal(15, 1); print(1, flush=True); signal.pause()"
            pids.append(self.children.start("pause", pause))
            pids.append(self.children.start("deaf", [sys.executable, "-c", deaf]))
            self.children.wait_until("deaf", lambda: self.children.log("deaf").stat().st_size > 0)

    with pytest.raises(KeyboardInterrupt), Sleeper(tmp_path / "sleeper") as sleeper:
        sleeper.children.patience_seconds = 0.2
        raise KeyboardInterrupt
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_a_process_that_ends_before_it_serves_is_shown(tmp_path: Path) -> None:
    children = Children(tmp_path)
    children.start("node", [sys.executable, "-c", "raise SystemExit('no port')"])
    with pytest.raises(SystemFailed, match="no port"):
        children.wait_until("node", lambda: False)
    children.end()


# --- the command ---


def test_an_unknown_part_is_rejected_with_the_valid_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["cluster", "--only", "everything"])
    assert "'everything' is not one or more of: idle, latency, produce" in capsys.readouterr().err


def test_a_saved_run_has_date_machine_and_figures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(suites, "load", lambda name: {name: lambda run: iter([Figure("rate", 2.0, "MB/s")])})
    assert command.main(["any", "--json", "--save", str(tmp_path / "run.json")]) == 0
    saved = json.loads((tmp_path / "run.json").read_text())
    assert sorted(saved) == ["date", "figures", "machine", "others", "suite", "versions"]
    assert saved["figures"][0]["figure"] == "rate"
    assert str(Path.cwd()) not in json.dumps(saved)
