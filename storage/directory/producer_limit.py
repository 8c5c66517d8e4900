"""The limit of the number of producers known in all logs of a node.

Idempotent producers are cheap to create, and each is kept for `producer.id.expiration.ms` in every partition that it
has written to.

Above the limit, the longest idle producers are removed, as if they had expired; never one with an open transaction.
Kafka has no such limit. Each replica applies it by itself, as it does with expiry.
"""

from __future__ import annotations

from typing import Final

from storage.directory.log_manager import LogManager
from tidelog.types import ProducerId

_SLACK: Final = 16
"""A sixteenth of the limit more is removed than necessary, so that the next check need not repeat it."""


def limit_producers(logs: LogManager, most: int) -> tuple[int, int]:
    """Above `most` producers in all logs, remove those whose last append is the oldest. Returns the number of known
    and of removed producers."""
    known = [(log, count) for _, log in logs.logs() if (count := len(log.active_producers()))]
    total = sum(count for _, count in known)
    if total <= most:
        return total, 0
    idle = sorted((producer, at) for at, (log, _) in enumerate(known) for producer in log.producers.state.expirable())
    excess: dict[int, list[ProducerId]] = {}
    for (_, _, producer_id), at in idle[: total - most + most // _SLACK]:
        excess.setdefault(at, []).append(producer_id)
    for at, producer_ids in excess.items():
        known[at][0].producers.state.forget(producer_ids)
    forgotten = sum(map(len, excess.values()))
    return total - forgotten, forgotten
