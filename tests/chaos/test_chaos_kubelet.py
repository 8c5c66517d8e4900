"""The kubelet of the chaos runs counts failures as the real one does, by the figures of the manifest."""

from __future__ import annotations

import pytest

from tests.chaos.history import Probed
from tests.chaos.kubelet import (
    KILLED,
    LIVENESS,
    NOT_READY,
    READINESS,
    READY,
    STARTED,
    STARTUP,
    Kubelet,
    Probe,
    probes_of,
)
from tests.integration import manifest

PROBES = probes_of(manifest.container())


class Machine:
    """A container whose answers the test chooses, and a clock that only the test turns."""

    def __init__(self) -> None:
        self.now = 0.0
        self.start: str | None = "first"
        self.answers = {STARTUP: True, READINESS: True, LIVENESS: True}
        self.asked: list[tuple[str, float]] = []
        self.noted: list[Probed] = []
        self.restarts: list[float] = []
        self._kubelet = Kubelet(1, PROBES, self._ask, self._restart, self.noted.append)

    def _ask(self, probe: Probe) -> bool:
        self.asked.append((probe.kind, self.now))
        return self.answers[probe.kind]

    def _restart(self) -> None:
        self.restarts.append(self.now)
        self.start = f"restart {len(self.restarts)}"

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            self._kubelet.look(self.start, lambda: self.now)
            self.now += 1

    def states(self) -> list[tuple[str, str]]:
        return [(each.probe, each.state) for each in self.noted]


def test_the_manifest_asks_for_what_a_node_answers() -> None:
    assert {kind: probe.service for kind, probe in PROBES.items()} == {
        STARTUP: "",
        READINESS: "tidelog.caught-up",
        LIVENESS: "",
    }


def test_nothing_else_is_asked_before_the_start_up_probe_has_succeeded() -> None:
    machine = Machine()
    machine.answers[STARTUP] = False
    machine.run(60)
    assert {kind for kind, _ in machine.asked} == {STARTUP}
    machine.answers.update({STARTUP: True, READINESS: False})
    machine.run(10)
    assert machine.states() == [(STARTUP, STARTED)], "it was not ready before, and is not yet"
    machine.answers[READINESS] = True
    machine.run(4)
    assert machine.states() == [(STARTUP, STARTED), (READINESS, READY)]


def test_a_container_that_does_not_start_is_killed_after_ten_minutes() -> None:
    machine = Machine()
    machine.answers[STARTUP] = False
    machine.run(598)
    assert not machine.restarts
    machine.run(2)
    assert len(machine.restarts) == 1


def test_a_container_that_lives_and_is_not_ready_is_left_alone() -> None:
    machine = Machine()
    machine.run(10)
    machine.answers[READINESS] = False
    machine.run(600)
    assert machine.states() == [(STARTUP, STARTED), (READINESS, READY), (READINESS, NOT_READY)]
    assert not machine.restarts


def test_a_container_that_does_not_live_is_killed_after_six_failures_in_a_row_and_starts_again() -> None:
    machine = Machine()
    machine.run(10)
    machine.answers[LIVENESS] = False
    machine.run(45)
    machine.answers[LIVENESS] = True
    machine.run(20)
    machine.answers[LIVENESS] = False
    machine.run(48)
    assert not machine.restarts, "a success between failures begins the count again"
    machine.run(15)
    assert len(machine.restarts) == 1
    killed = next(each for each in machine.noted if each.state == KILLED)
    assert killed.t - killed.since == 50, "from the first of six failures, one every ten seconds"
    assert machine.states()[-2:] == [(STARTUP, STARTED), (READINESS, READY)]


def test_a_container_that_a_fault_restarts_is_new() -> None:
    machine = Machine()
    machine.run(10)
    machine.answers[LIVENESS] = False
    machine.run(45)
    machine.start = None
    machine.run(100)
    assert not machine.restarts, "what does not run is not probed"
    machine.answers[LIVENESS] = True
    machine.start = "second"
    machine.run(3)
    assert machine.states()[-2:] == [(STARTUP, STARTED), (READINESS, READY)]


def test_a_kubelet_that_ends_by_an_error_is_missed() -> None:
    """Without it no node would be found dead any more, and the run would pass."""
    machine = Machine()
    kubelet = Kubelet(1, PROBES, lambda _: True, lambda: None, machine.noted.append)
    looks = iter([False, False, True])
    kubelet.run(lambda: "first", lambda: 0, lambda: next(looks))
    kubelet.ensure_alive()

    def unanswered() -> str:
        raise ConnectionError("no engine")

    kubelet.run(unanswered, lambda: 0, lambda: False)
    with pytest.raises(RuntimeError, match=r"nothing probes node 1 any more: .*no engine"):
        kubelet.ensure_alive()
