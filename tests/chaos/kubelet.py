"""What a kubelet does with a container: it probes it as the manifest says, and restarts one that does not live.

Until its start-up probe has succeeded, a container is asked nothing else. A probe has failed after so many failures
in a row. Of readiness that is noted; of the others, the container is stopped as for any other reason (preStop, SIGTERM,
SIGKILL after the grace period) and started again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.chaos.history import Probed

STARTUP, READINESS, LIVENESS = "startup", "readiness", "liveness"
STATES = STARTED, READY, NOT_READY, KILLED = "started", "ready", "not ready", "killed"


@dataclass(frozen=True, slots=True)
class Probe:
    kind: str
    service: str
    """Of the health service that is asked; empty: of the whole node."""
    period_s: float
    timeout_s: float
    threshold: int
    """Failures in a row."""


def probes_of(container: Mapping[str, Any]) -> dict[str, Probe]:
    """The three probes of a container of a rendered manifest, by kind."""
    found = {}
    for kind in (STARTUP, READINESS, LIVENESS):
        given = container[f"{kind}Probe"]
        figures = (given["periodSeconds"], given["timeoutSeconds"], given["failureThreshold"])
        found[kind] = Probe(kind, given["grpc"].get("service", ""), *figures)
    return found


class Kubelet:
    """Of one container."""

    def __init__(
        self,
        node: int,
        probes: Mapping[str, Probe],
        ask: Callable[[Probe], bool],
        restart: Callable[[], None],
        note: Callable[[Probed], None],
    ) -> None:
        self._node, self._probes = node, probes
        self._ask, self._restart, self._note = ask, restart, note
        self._failure: Exception | None = None
        self._begin(None)

    def run(self, start: Callable[[], str | None], clock: Callable[[], float], has_ended: Callable[[], bool]) -> None:
        """Look until ended, on a thread of its own; see `ensure_alive`. has_ended: waits for a moment first."""
        try:
            while not has_ended():
                self.look(start(), clock)
        except Exception as failure:  # noqa: BLE001 - raised by the thread of the run
            self._failure = failure

    def ensure_alive(self) -> None:
        """Raise RuntimeError if it looks no more: a node that nothing probes is not found dead by a probe."""
        if self._failure is not None:
            raise RuntimeError(f"nothing probes node {self._node} any more: {self._failure!r}") from self._failure

    def _begin(self, start: str | None) -> None:
        self._start = start
        self._has_started = False
        self._is_ready = False
        self._due: dict[str, float] = {}
        self._failing: dict[str, list[float]] = {kind: [] for kind in self._probes}
        """The moments of the failures in a row."""

    def look(self, start: str | None, clock: Callable[[], float]) -> None:
        """Ask what is due. start: names the start of the container that runs now; None: it does not run."""
        if start != self._start:
            self._begin(start)
        if start is None:
            return
        for kind in (READINESS, LIVENESS) if self._has_started else (STARTUP,):
            probe = self._probes[kind]
            if clock() >= self._due.get(kind, 0):
                self._due[kind] = clock() + probe.period_s
                self._judge(probe, self._ask(probe), clock())

    def _judge(self, probe: Probe, succeeded: bool, now: float) -> None:
        failing = self._failing[probe.kind]
        if succeeded:
            failing.clear()
        else:
            failing.append(now)
        has_failed = len(failing) >= probe.threshold
        if probe.kind == READINESS:
            ready = succeeded or (self._is_ready and not has_failed)
            if ready != self._is_ready:
                self._is_ready = ready
                self._note(Probed(now, self._node, probe.kind, READY if ready else NOT_READY, now))
        elif has_failed:
            self._note(Probed(now, self._node, probe.kind, KILLED, failing[0]))
            self._begin(self._start)
            self._restart()
        elif probe.kind == STARTUP and succeeded:
            self._has_started = True
            self._note(Probed(now, self._node, probe.kind, STARTED, now))
