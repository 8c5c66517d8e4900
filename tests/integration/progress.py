"""The books a test keeps about a workload: what was acknowledged, what was read, and that nothing is missing."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

WORKLOAD = Path(__file__).with_name("workload.py")
Place = tuple[int, int]
"""Partition and offset."""


class Workload:
    """Runs tests/integration/workload.py, or another script, where a client may stand: `shell` is the command that gets
    into that place, `options` precede each command of the workload."""

    def __init__(self, *shell: str, options: Sequence[str] = (), script: Path = WORKLOAD) -> None:
        self._command = (*shell, "python", "-", *options)
        self._script = script

    def start(self, *arguments: object) -> subprocess.Popen[str]:
        with self._script.open() as script:
            return subprocess.Popen(
                [*self._command, *map(str, arguments)],
                stdin=script,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )

    def run(self, *arguments: object, timeout: float = 120) -> list[list[object]]:
        """All lines that a command tells; it must succeed."""
        process = self.start(*arguments)
        try:
            output, complaint = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            output, complaint = process.communicate()
            raise AssertionError(f"{arguments}: not done in {timeout} s: {output[-500:]} {complaint[-2000:]}") from None
        assert process.returncode == 0, f"{arguments}: {complaint[-4000:]}"
        return [json.loads(line) for line in output.splitlines()]


@dataclass(frozen=True, order=True)
class Pause:
    """A time without an acknowledgement of one partition."""

    seconds: float = 0.0
    partition: int = -1
    until: str = ""
    """The time of day, to be found in the logs of nodes."""

    def __str__(self) -> str:
        return f"{self.seconds:.1f} s (partition {self.partition}, until {self.until})"


@dataclass
class Load:
    """A load that runs beside the test; `acked` grows while it does."""

    process: subprocess.Popen[str]
    acked: dict[Place, str] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)
    longest: Pause = Pause()
    complaints: deque[str] = field(default_factory=lambda: deque(maxlen=20))
    """The last lines that it wrote to standard error."""
    _acked_of: Counter[int] = field(default_factory=Counter)
    """How many records of each partition."""
    _unreadable: str = ""
    _moved: threading.Condition = field(default_factory=threading.Condition)

    def __post_init__(self) -> None:
        self._readers = [threading.Thread(target=each, daemon=True) for each in (self._listen, self._listen_to_errors)]
        for each in self._readers:
            each.start()

    def _listen_to_errors(self) -> None:
        """A pipe that is not read stops the program that writes to it."""
        assert self.process.stderr is not None
        self.complaints.extend(self.process.stderr)

    def _listen(self) -> None:
        assert self.process.stdout is not None
        last: dict[int, float] = {}
        for line in self.process.stdout:
            try:
                kind, partition, value, detail = json.loads(line)
            except ValueError:
                self._unreadable = self._unreadable or line
                continue
            with self._moved:
                if kind == "acked":
                    self.acked[partition, detail] = value
                    self._acked_of[partition] += 1
                    self._note_pause(partition, last)
                else:
                    self.refused[detail] += 1
                self._moved.notify_all()
        for partition in last:
            self._note_pause(partition, last)

    def _note_pause(self, partition: int, last: dict[int, float]) -> None:
        """last: when each partition has acknowledged a record; this one does now, or the load ends."""
        now = time.monotonic()
        until = f"{datetime.now(UTC):%H:%M:%S.%f}"[:-3]
        self.longest = max(self.longest, Pause(now - last.get(partition, now), partition, until))
        last[partition] = now

    def wait_acked_everywhere(self, partitions: int, timeout: float = 30) -> None:
        """Until, from now on, every partition has acknowledged a record."""
        with self._moved:
            before = self._acked_of.copy()

            def everywhere() -> bool:
                return all(self._acked_of[partition] > before[partition] for partition in range(partitions))

            assert self._moved.wait_for(everywhere, timeout), (
                f"not acknowledged everywhere within {timeout} s: before {before}, refused {self.refused}"
            )

    def finish(self, timeout: float) -> None:
        """Until the load has ended by itself; it must have succeeded."""
        status = self.process.wait(timeout)
        for each in self._readers:
            each.join(timeout)
        assert status == 0, "".join(self.complaints)[-4000:]
        assert not self._unreadable, f"what it told is not known: {self._unreadable}"

    def kill(self) -> None:
        """End it at once, where a test has failed that would have ended it."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@dataclass(frozen=True)
class Quorum:
    """The metadata quorum, as printed by the workload's `quorum`."""

    controller: int
    voters: list[int]


def quorum(client: Workload) -> Quorum:
    ((_, controller, voters),) = client.run("quorum")
    return Quorum(controller, voters)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Partition:
    partition: int
    leader: int
    isr: list[int]


def partitions(lines: Sequence[Sequence[object]]) -> list[Partition]:
    """The output of the workload's `describe`."""
    return [Partition(*line[1:]) for line in lines if line[0] == "partition"]  # type: ignore[arg-type]


def most_leading(described: Sequence[Partition]) -> int:
    """The node that leads most partitions, of those that may be killed."""
    led = Counter(partition.leader for partition in described if partition.leader >= 0)
    assert led, f"no partition is led: {described}"
    return led.most_common(1)[0][0]


def check_nothing_lost(load: Load, lines: Sequence[Sequence[object]]) -> None:
    """Acknowledged minus read is empty, at the very offsets acknowledged, and no record is stored twice."""
    output = [(int(str(partition)), int(str(offset)), str(value)) for _, partition, value, offset in lines]
    stored = {(partition, offset): value for partition, offset, value in output}
    missing = {place: value for place, value in load.acked.items() if stored.get(place) != value}
    assert load.acked, "nothing was acknowledged at all"
    assert missing == {}, f"{len(missing)} acknowledged records are missing or differ"
    twice = [value for value, times in Counter((p, v) for p, _, v in output).items() if times > 1]
    assert twice == [], "records that were sent once are stored twice"
