"""Patterns that members subscribe to, and the topics that match them. The library of regular expressions comes in from
outside: it has to work in linear time, since patterns come from clients (KIP-848 names RE2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from tidelog.types import INTERNAL_TOPICS

Matcher: TypeAlias = Callable[[str], bool]
"""Whether a whole topic name matches."""
CompilePattern: TypeAlias = Callable[[str], Matcher]
"""Raises InvalidRegularExpression."""

_COMPILED_MAX: Final = 1_000


class TopicPatterns:
    """Compiled patterns, the last `_COMPILED_MAX` of them."""

    def __init__(self, compile_pattern: CompilePattern) -> None:
        self._compile = compile_pattern
        self._compiled: dict[str, Matcher] = {}

    def compiled(self, pattern: str) -> Matcher:
        """Raises InvalidRegularExpression."""
        matcher = self._compiled.get(pattern)
        if matcher is None:
            matcher = self._compile(pattern)
            if len(self._compiled) >= _COMPILED_MAX:
                del self._compiled[next(iter(self._compiled))]
            self._compiled[pattern] = matcher
        return matcher

    def matching(self, pattern: str, names: Iterable[str]) -> set[str]:
        """The names that match; internal topics never do. Raises InvalidRegularExpression."""
        matches = self.compiled(pattern)
        return {name for name in names if name not in INTERNAL_TOPICS and matches(name)}
