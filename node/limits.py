"""How much one request may ask for: bounds that no honest caller meets, so that a faulty one costs a bounded turn of
the loop and a bounded amount of memory."""

from __future__ import annotations

from collections.abc import Sized
from typing import Final

from tidelog.errors import InvalidRequest

ENTRIES_MAX: Final = 10_000
"""Entries of one request: the partitions of the largest topic. Refusing so many takes some 100 ms."""

UNARY_FETCH_BYTES_MAX: Final = 64 << 20
"""Records that the partitions of one unary fetch share: half of the largest message."""

FIRST_ANSWER_BYTES: Final = 1 << 20
"""Records in the first answer on a consumer's stream, or one batch; each that is taken doubles it. A reader that never
takes an answer costs no more."""

SLOW_READER_MS: Final = 10_000
"""A stream whose answer was not taken for so long is closed where others wait for memory."""

UNSENT_MAX: Final = 1_000
"""Answers that wait for a stream to take them, before no more is read from it."""


def ensure_few(entries: Sized, what: str) -> None:
    """Raises InvalidRequest where a request has more entries than any needs."""
    if len(entries) > ENTRIES_MAX:
        raise InvalidRequest(f"the request has {len(entries)} {what}: at most {ENTRIES_MAX} fit, send several requests")
