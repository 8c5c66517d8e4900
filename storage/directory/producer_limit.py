"""How many producers all logs of a node know together: idempotent producers are cheap to make, and each is remembered
for `producer.id.expiration.ms` in every partition that it has written to.

Beyond the limit those are forgotten that have been idle for longest, as if they had expired; none with an open
transaction. Kafka has no such limit. A replica does it by itself, as it does with expiry.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from storage.directory.log_manager import LogManager
from tidelog.types import ProducerId

_SLACK: Final = 16
"""A sixteenth more is forgotten than has to be: it is not done again with the next look."""


class ProducersCounted(NamedTuple):
    """How many are known, and how many were forgotten."""

    known: int
    forgotten: int


def limit_producers(logs: LogManager, most: int) -> ProducersCounted:
    """Count the producers of all logs, and forget those that appended longest ago of more than `most`."""
    known = [(log, count) for _, log in logs.logs() if (count := len(log.active_producers()))]
    total = sum(count for _, count in known)
    if total <= most:
        return ProducersCounted(total, 0)
    idle = sorted((producer, at) for at, (log, _) in enumerate(known) for producer in log.producers.expirable())
    excess: dict[int, list[ProducerId]] = {}
    for (_, _, producer_id), at in idle[: total - most + most // _SLACK]:
        excess.setdefault(at, []).append(producer_id)
    for at, producer_ids in excess.items():
        known[at][0].producers.forget(producer_ids)
    forgotten = sum(map(len, excess.values()))
    return ProducersCounted(total - forgotten, forgotten)
