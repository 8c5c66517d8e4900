"""The warning of records that a program leaves queued when it ends.

A RuntimeWarning, as for a coroutine that was never awaited: Python shows it unless the program hides it, also while the
interpreter exits, when there may be no logging any more. A ResourceWarning would be hidden by default.
"""

from __future__ import annotations

import warnings
from collections import Counter

from tidelog.client.producer_core import ProducerCore


def warn_of_unsent(core: ProducerCore) -> None:
    """Warn where records are queued although the producer will not send them any more: it was never closed."""
    counts: Counter[str] = Counter()
    for batch in core.unfinished():
        batch.outcome.asked = True  # no second message for each batch
        counts[batch.queue.topic_partition.topic] += batch.outcome.records
    if counts:
        topics = ", ".join(f"{count} for topic {topic!r}" for topic, count in sorted(counts.items()))
        warnings.warn(
            f"a producer ended without close(): {counts.total()} queued records were not acknowledged and may be lost "
            f"({topics}). Use the producer in a `with` block, or call close() before the program ends.",
            RuntimeWarning,
            stacklevel=2,
        )
