"""Patterns of topic names that group members subscribe to, in the syntax of RE2: they come from clients, and RE2 needs
time proportional to the length of the name, whatever the pattern (KIP-848).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tidelog.errors import InvalidRegularExpression

_MEMORY_BYTES_MAX: Final = 1 << 20
"""Memory limit of one compiled pattern. Larger patterns are refused."""


def compile_pattern(pattern: str) -> Callable[[str], bool]:
    """Returns whether a whole name matches. Raises InvalidRegularExpression."""
    import re2  # 1 MiB that a node saves whose members name their topics

    options: Any = re2.Options()
    options.log_errors = False  # the error names the reason
    options.max_mem = _MEMORY_BYTES_MAX
    try:
        re2.compile(pattern, options)
        patterns = re2.Set.FullMatchSet(options)  # a set of one: its matches cost a tenth of those of a pattern
        patterns.Add(pattern)
        patterns.Compile()
    except (re2.error, UnicodeEncodeError) as cause:
        reason = cause.args[0] if cause.args else cause
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise InvalidRegularExpression(
            f"pattern {pattern!r} is not a regular expression of RE2: {text}; backreferences and lookarounds are not "
            "supported"
        ) from cause

    def matches(name: str) -> bool:
        return bool(patterns.Match(name))

    return matches
