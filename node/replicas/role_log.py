"""Log lines about the roles of replicas: a failover of a thousand partitions is one line.

While the changes of an image are applied, the changes of roles are collected. Up to `LINES_MAX` are written with their
offsets, one line each; more become one line that counts them. At level debug each has a line, at once.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Final, NamedTuple

_log = logging.getLogger("node.partition")

LINES_MAX: Final = 5
"""Changes of one image that are written one by one."""

NAMES_MAX: Final = 3
"""Partitions that a summary names of each kind."""


class RoleChange(Enum):
    """What a replica does from now on."""

    LEADS = "leads"
    FOLLOWS = "follows"
    ENDED = "no longer leads"


class _Collected(NamedTuple):
    change: RoleChange
    name: str
    line: logging.LogRecord
    """With the time of the change."""


class RoleLog:
    """The lines of one node."""

    def __init__(self) -> None:
        self._collected: list[_Collected] = []
        self._is_collecting = False

    def begin(self) -> None:
        """Collect from now on."""
        self._is_collecting = True

    def end(self) -> None:
        """Write what was collected."""
        self._is_collecting = False
        collected, self._collected = self._collected, []
        if len(collected) <= LINES_MAX:
            for each in collected:
                _log.handle(each.line)
        else:
            _log.info("roles of %d partitions changed: %s", len({each.name for each in collected}), _kinds(collected))

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Collect what changes in the block, and write it at its end unless it is part of something larger."""
        if self._is_collecting:
            yield
            return
        self.begin()
        try:
            yield
        finally:
            self.end()

    def changed(self, change: RoleChange, name: object, text: str, *values: object) -> None:
        """Write or collect a change. text: of the line behind the partition's name, with `values` to format."""
        if not _log.isEnabledFor(logging.INFO):
            return
        text = f"%s: {text}"
        if not self._is_collecting or _log.isEnabledFor(logging.DEBUG):
            _log.info(text, name, *values)
            return
        line = _log.makeRecord(_log.name, logging.INFO, __file__, 0, text, (name, *values), None)
        self._collected.append(_Collected(change, str(name), line))


def _kinds(collected: list[_Collected]) -> str:
    counts = Counter(each.change for each in collected)
    return "; ".join(
        f"{change.value} {count} ({_names([each.name for each in collected if each.change is change])})"
        for change in RoleChange
        if (count := counts[change])
    )


def _names(names: list[str]) -> str:
    return ", ".join(names[:NAMES_MAX]) + (", ..." if len(names) > NAMES_MAX else "")
