"""One run: the nodes, the workload beside them, the rounds of the schedule, then the judgement."""

from __future__ import annotations

import dataclasses
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final, Self

from node.process.local_cluster import ClusterFailed
from tests.chaos import history
from tests.chaos.faults.table import FAULTS
from tests.chaos.faults.upgrades import change_version, raise_feature_level
from tests.chaos.nodes import Addresses, Nodes
from tests.chaos.replicas import read_replicas
from tests.chaos.schedule import Band, Round
from tests.chaos.verdict import AT_WORK_S, Evidence, Finding, Silence, Span, judge, silences
from tests.chaos.workloads.work import PARTITIONS, places_of

ROOT: Final = Path(__file__).resolve().parents[2]
HEALTHY_S: Final = 240.0
START_S: Final = 90.0
ENDS_LATE_S: Final = 30.0
"""So long after a fault by which a node may end: on busy cores it takes seconds to give up its only directory."""
DRAIN_S: Final = 360.0
"""For the end of the workload: the last deliveries, the drain and the final reads."""
AFTER_S: Final = 8.0
"""The workload goes on for so long after the cluster is healthy again."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class PlayedBand:
    """A fault as it happened (seconds of the history's clock)."""

    kind: str
    nodes: tuple[int, ...]
    what: str
    begin: float
    end: float


@dataclass
class Played:
    """What happened in one run."""

    began: float
    ended: float = 0.0
    bands: list[PlayedBand] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    failure: str | None = None
    """What ended the run before its time: the cluster did not recover, or the workload ended."""


@dataclass(frozen=True)
class Result:
    """The judgement of one run."""

    played: Played
    evidence: Evidence
    findings: list[Finding]
    silences: list[Silence]

    @property
    def passed(self) -> bool:
        return self.played.failure is None and not self.findings

    @property
    def checks_failed(self) -> Counter[str]:
        return Counter(finding.check for finding in self.findings)


def play(
    nodes: Nodes,
    rounds: Sequence[Round],
    seconds: float,
    seed: int,
    directory: Path,
    say: Say,
    *,
    spark: bool = False,
) -> Result:
    """Play the rounds on these nodes, with the workload beside them, and judge. directory: for history and logs. spark:
    whether its query runs too.

    An error of the machinery itself is raised; what the cluster or the workload does wrong is in the result.
    """
    played = Played(history.now())
    file = directory / "history.jsonl"
    in_sync: dict[tuple[str, int], list[int]] = {}
    try:
        nodes.wait_healthy(START_S)
        if nodes.other is not None:
            change_version(nodes, range(nodes.count), other=False)
            nodes.wait_healthy(START_S)
        with _Workload(nodes.addresses, nodes.count, seed, file, directory, spark=spark) as workload:
            workload.wait_at_work()
            begin = history.now()
            for planned in rounds:
                play_round(nodes, planned, begin, played, say)
                workload.ensure_running()
                ensure_nodes_running(nodes, played.bands, say)
            _wait_healthy(nodes, played, say)
            if nodes.other is not None:
                raise_feature_level(nodes)
                say("the feature level is raised")
            workload.run_on(max(begin + seconds - history.now(), AFTER_S))
            _wait_at_work(workload, file, played)
            workload.finish(DRAIN_S)
        nodes.wait_healthy(HEALTHY_S)
        by_topic = {topic: nodes.in_sync(topic) for topic in PARTITIONS}
        in_sync = {(topic, partition): by_topic[topic][partition] for topic, partition in places_of(*PARTITIONS)}
    except (ClusterFailed, WorkloadFailed) as failure:
        played.failure = str(failure)
        say(f"FAILED: {played.failure.partition(chr(10))[0]}")
    finally:
        # What an acknowledgement promised is in the files, not in the memory of a process.
        nodes.kill(*range(nodes.count))
        nodes.keep_logs(directory)
    played.ended = history.now()
    with history.History(file, append=True) as rest:
        for each in nodes.probed:
            rest.note(each)
    events = list(history.read(file))
    evidence = Evidence.of(events)
    faults_end = max((band.end for band in played.bands), default=played.began)
    struck = [(node, Span(band.kind, band.begin, band.end)) for band in played.bands for node in band.nodes]
    flipped = {(band.nodes[0], band.what.partition("/")[0]) for band in played.bands if band.kind == "flip-bit"}
    for replica in read_replicas(nodes, in_sync, flipped):
        evidence.add(replica)
    # A run that was ended early has no final reads: only its failure is judged.
    findings = [] if played.failure is not None else judge(evidence, faults_end, struck)
    if findings or played.failure is not None:
        _keep_folders(nodes, directory)
    return Result(played, evidence, findings, silences(evidence, played.spans, _last_acknowledgement(evidence)))


def _keep_folders(nodes: Nodes, directory: Path) -> None:
    """Copy the files of all nodes. Their indexes are preallocated: without holes a copy would be many times larger."""
    for node in range(nodes.count):
        data = nodes.data(node)
        if data.is_dir():  # it may have failed before it made one
            # A disk that is still broken gives some of them.
            subprocess.run(["cp", "-a", "--sparse=always", str(data), str(directory / f"node-{node}")], check=False)


def _wait_at_work(workload: _Workload, file: Path, played: Played) -> None:
    """Until every worker has succeeded again, or has had its time for that: the verdict says which has not."""
    faults_end = max((band.end for band in played.bands), default=played.began)
    so_far = Evidence()
    with file.open(encoding="utf-8") as written:
        while history.now() < faults_end + AT_WORK_S + 1:
            for event in history.read_on(written):
                so_far.add(event)
            if so_far.is_at_work(faults_end):
                return
            workload.run_on(1)


def ensure_nodes_running(nodes: Nodes, bands: Sequence[PlayedBand], say: Say) -> None:
    """Each node must run after a round and before the next one: a fault that kills one and starts it again would hide
    that it had ended by itself."""
    since = history.now() - ENDS_LATE_S
    allowed = {
        node: band.kind for band in bands if FAULTS[band.kind].may_end_nodes and band.end > since for node in band.nodes
    }
    for node in range(nodes.count):
        if nodes.is_running(node):
            continue
        if node not in allowed:
            nodes.ensure_running()
        nodes.start(node)
        say(f"node {node} has ended a moment after {allowed[node]}: started again")


def _wait_healthy(nodes: Nodes, played: Played, say: Say) -> None:
    try:
        nodes.wait_healthy(HEALTHY_S)
    except ClusterFailed:
        if all(map(nodes.is_running, range(nodes.count))):
            raise
        ensure_nodes_running(nodes, played.bands, say)
        nodes.wait_healthy(HEALTHY_S)


def save(result: Result, rounds: Sequence[Round], directory: Path) -> None:
    """The schedule, what became of it, and what was found, beside the history and the logs."""
    named = {
        "rounds": [dataclasses.asdict(each) for each in rounds],
        "played": dataclasses.asdict(result.played),
        "findings": [dataclasses.asdict(each) for each in result.findings],
        "silences": [dataclasses.asdict(each) for each in result.silences],
    }
    (directory / "schedule.json").write_text(json.dumps(named, indent=1), encoding="utf-8")


def _last_acknowledgement(evidence: Evidence) -> float:
    """The producers stop some time before the end of a run: the silence that follows is theirs."""
    return max((each.t for each in evidence.acked), default=0.0)


def play_round(nodes: Nodes, each: Round, begin: float, played: Played, say: Say) -> None:
    """Play one round, once its time has come. begin: of the run. Raises ClusterFailed if a node has ended by itself in
    the quiet time before it."""
    if each.needs_in_sync:
        try:
            _wait_healthy(nodes, played, say)
        except ClusterFailed as failure:
            raise ClusterFailed(f"before {each.name}, after earlier faults: {failure}") from failure
    late = max(0.0, history.now() - begin - each.begin)
    _wait_until(begin + late + each.begin)
    ensure_nodes_running(nodes, played.bands, say)
    failures: list[BaseException] = []
    threads = [
        threading.Thread(
            target=_play_band, args=(nodes, band, begin + late, played, say, failures), name=band.kind, daemon=True
        )
        for band in each.bands
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    bands = played.bands[-len(each.bands) :]
    played.spans.append(Span(each.name, min(band.begin for band in bands), max(band.end for band in bands)))


def _play_band(nodes: Nodes, band: Band, begin: float, played: Played, say: Say, failures: list[BaseException]) -> None:
    try:
        fault = FAULTS[band.kind]
        _wait_until(begin + band.begin)
        first = history.now()
        what = fault.begin(nodes, band, Random(band.seed))
        # A fault that takes longer to begin than it should last ends at once.
        _wait_until(begin + band.end)
        fault.end(nodes, band)
        found = PlayedBand(band.kind, band.nodes, what, first, history.now())
        played.bands.append(found)
        victims = ", ".join(map(str, sorted(band.nodes)))
        detail = f" ({what})" if what else ""
        say(f"{band.kind}{detail}: node {victims}, {found.end - found.begin:.1f} s")
    except BaseException as failure:  # noqa: BLE001 - raised by the thread of the run
        failures.append(failure)


def _wait_until(moment: float) -> None:
    time.sleep(max(0.0, moment - history.now()))


class WorkloadFailed(Exception):
    """The workload ended by itself, or did not end in time."""


class _Workload:
    """The process of all workers (workloads/__main__.py)."""

    def __init__(
        self, addresses: Addresses, nodes: int, seed: int, file: Path, directory: Path, *, spark: bool
    ) -> None:
        self._log = log = directory / "workload.log"
        arguments = ["--bootstrap", addresses.bootstrap, "--kafka-bootstrap", addresses.kafka_bootstrap]
        arguments += ["--nodes", str(nodes), "--seed", str(seed), "--history", str(file.resolve())]
        if spark:
            arguments += ["--spark", str(directory.resolve())]
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [*addresses.wrapper, sys.executable, "-m", "tests.chaos.workloads", *arguments],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def wait_at_work(self) -> None:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], START_S)
        if not ready or self._process.stdout.readline().strip() != b"at work":
            raise WorkloadFailed(f"the workload did not begin:\n{self._tail()}")

    def ensure_running(self) -> None:
        if self._process.poll() is not None:
            raise WorkloadFailed(f"the workload ended with exit code {self._process.returncode}:\n{self._tail()}")

    def run_on(self, seconds: float) -> None:
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return
        self.ensure_running()

    def finish(self, within_s: float) -> None:
        """Let the producers stop, and wait until everything is read."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise WorkloadFailed(f"the workload did not end within {within_s:g} s:\n{self._tail()}") from None
        if self._process.returncode != 0:
            raise WorkloadFailed(f"the workload failed:\n{self._tail()}")

    def _tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-30:])
