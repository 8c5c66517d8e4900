"""Warning about records that are still queued when a program ends.

It is a RuntimeWarning, as for a coroutine that was never awaited: Python shows it by default, even at interpreter exit,
when logging may be gone. Python hides a ResourceWarning by default.
"""

from __future__ import annotations

import warnings
from collections import Counter

from tidelog.client.producer_core import ProducerCore


def warn_of_unsent(core: ProducerCore) -> None:
    """Warn if records are still queued: the producer was not closed and will not send them."""
    counts: Counter[str] = Counter()
    for batch in core.unfinished():
        batch.outcome.asked = True  # suppresses the message per batch
        counts[batch.queue.topic_partition.topic] += batch.outcome.records
    if counts:
        topics = ", ".join(f"{count} for topic {topic!r}" for topic, count in sorted(counts.items()))
        warnings.warn(
            f"a producer ended without close(): {counts.total()} queued records were not acknowledged and may be lost "
            f"({topics}). Use the producer in a `with` block, or call close() before the program ends.",
            RuntimeWarning,
            stacklevel=2,
        )
