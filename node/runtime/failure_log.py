"""Log lines about work that fails again and again, as all calls of an object store that is away for an hour: of each
cause the first failure at once, then one line a minute with the number of the others, and one when the work succeeds
again.

Not here: when the work is repeated (its owner), metrics.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from tidelog.clock import Clock
from tidelog.types import Millis
from tidelog.values import dataclass

WINDOW_MS: Final = 60_000
QUIET_MS: Final = 300_000
"""After so long without failures the next one begins again. Work is repeated after a minute at most, and a call of a
store that hangs takes another one and a half."""
CAUSES_MAX: Final = 20
"""Causes with lines of their own. The others share one: a store may have lost thousands of objects."""
_OTHERS: Final = "others"


@dataclass(slots=True)
class _Cause:
    since: Millis
    last: Millis
    next_line: Millis
    unsaid: int = 0
    """Failures since the last line."""
    is_said: bool = False
    """A failure has had a line since the work last succeeded."""
    is_over: bool = False
    """The work has succeeded since."""


class FailureLog:
    """The failures of one kind of work on many things."""

    def __init__(self, log: logging.Logger, clock: Clock, *, common: tuple[type[Exception], ...]) -> None:
        """common: errors of which all things have the same cause and remedy. Of others, each thing has its own."""
        self._log, self._clock, self._common = log, clock, common
        self._causes: dict[str, _Cause] = {}

    def failed(self, error: Exception, thing: object, text: Callable[[], str]) -> None:
        """The work on a thing has failed. text: the line; called only if it is logged."""
        now, own = self._clock.monotonic_ms(), f"{type(error).__name__} of {thing}"
        known = self._known(next((each.__name__ for each in self._common if isinstance(error, each)), own), now)
        if known.is_over:
            known.since, known.unsaid, known.is_over = now, 0, False
        known.last = now
        if now < known.next_line:
            known.unsaid += 1
            return
        lasts_s = (now - known.since) // 1_000
        more = f" (for {lasts_s} s, with {known.unsaid} more failures since the last line)" if lasts_s else ""
        self._log.warning("%s%s", text(), more)
        known.unsaid, known.is_said, known.next_line = 0, True, Millis(now + WINDOW_MS)

    def _known(self, cause: str, now: Millis) -> _Cause:
        if cause not in self._causes and len(self._causes) >= CAUSES_MAX:
            self._causes = {key: each for key, each in self._causes.items() if now < each.last + QUIET_MS}
            if len(self._causes) >= CAUSES_MAX:
                cause = _OTHERS
        known = self._causes.get(cause)
        if known is None or now >= known.last + QUIET_MS:
            known = self._causes[cause] = _Cause(now, now, now)
        return known

    def succeeded(self, text: str) -> None:
        """Work has succeeded, which shows that what all things have in common works again. A line says so if one of its
        failures had one."""
        now, names = self._clock.monotonic_ms(), [each.__name__ for each in self._common]
        over = [self._causes[each] for each in names if each in self._causes]
        said = [each.since for each in over if each.is_said]
        if said:
            self._log.info("%s, after %d s", text, (now - min(said)) // 1_000)
        for each in over:
            # `next_line` stays: what fails and succeeds in turns has two lines a minute.
            each.is_said, each.is_over = False, True
