"""A wall clock that is wrong on demand: the clocks of the machine, with the offset and the drift that a file names.

The process of a test writes that file (`write_offset`), the process of a node looks at it whenever it asks for the wall
clock's time. Invariant: monotonic time is that of the machine, as after an administrator or NTP has set the clock.
"""

from __future__ import annotations

import os
from pathlib import Path

from tidelog.clock import MachineClock
from tidelog.types import Millis


def write_offset(path: Path, ahead_ms: int, drift: float = 0) -> None:
    """Let the clock that reads `path` be so far ahead of the machine's (negative: behind). drift: the seconds by which
    it gets further ahead in each second from now on."""
    new = path.with_suffix(".new")
    new.write_text(f"{ahead_ms} {drift} {MachineClock().monotonic_ms()}", encoding="ascii")
    new.replace(path)


class FaultyClock(MachineClock):
    """The clocks of this machine, as `Clock`; the wall clock has the offset that the file `path` names. A missing file
    names none."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen = (-1, -1)
        self._ahead_ms = 0
        self._drift = 0.0
        self._since_ms = 0

    def wall_ms(self) -> Millis:
        try:
            status = os.stat(self._path)  # noqa: PTH116 - for each record that is appended
        except FileNotFoundError:
            return super().wall_ms()
        seen = status.st_mtime_ns, status.st_ino  # two changes may have one time: clocks of file systems are coarse
        if seen != self._seen:
            ahead_ms, drift, since_ms = Path(self._path).read_text(encoding="ascii").split()
            self._ahead_ms, self._drift, self._since_ms = int(ahead_ms), float(drift), int(since_ms)
            self._seen = seen
        # All processes of a machine have the same monotonic time.
        drifted_ms = round(self._drift * (self.monotonic_ms() - self._since_ms))
        return Millis(super().wall_ms() + self._ahead_ms + drifted_ms)
