"""Limits for single requests. No correct client reaches them; they bound the loop time and memory that a faulty one
costs."""

from __future__ import annotations

from collections.abc import Sized
from typing import Final

from tidelog.errors import InvalidRequest

ENTRIES_MAX: Final = 10_000
"""Entries of one request: the partitions of the largest topic. Rejecting that many takes about 100 ms."""

DESCRIBED_MAX: Final = 1_000
"""Groups, transactional ids or topics that one request describes, or deletes. The answer with 10,000 groups took the
loop 150 ms."""

NODES_DESCRIBED_MAX: Final = 10
"""Times that one request may ask for the settings of the node that gets it. Each has 130, of 10 KB and 3 ms."""

UNARY_FETCH_BYTES_MAX: Final = 64 << 20
"""Total bytes of records in the answer to a unary fetch: half of the largest message."""

FIRST_ANSWER_BYTES: Final = 1 << 20
"""Bytes of records in the first answer on a consumer's stream, or one batch. Each answer that the consumer takes
doubles the size. A consumer that takes no answer costs no more than this."""

SLOW_READER_MS: Final = 10_000
"""The connection of a caller that has not read an answer for this long is closed if others wait for memory."""

UNREAD_ANSWER_MS: Final = 60_000
"""The connection of a caller that has not read the answer of a call for this long is closed, even if no
one waits for memory. Calls of Tidelog's clients have shorter timeouts."""

IDLE_MS: Final = 600_000
"""A connection without requests for this long is closed, unless the configuration says otherwise. Kafka's default."""

UNSENT_MAX: Final = 1_000
"""Answers that wait to be sent on a stream before reading from it stops."""


def ensure_few(entries: Sized, what: str, most: int = ENTRIES_MAX) -> None:
    """Raise InvalidRequest if a request has more than `most` entries. what: their name, in the plural."""
    if len(entries) > most:
        raise InvalidRequest(
            f"the request has {len(entries)} {what}: at most {most} are allowed, split it into several requests"
        )
