"""The warning of records that a producer never sent."""

from __future__ import annotations

import warnings
from collections import Counter

from tidelog.client.producer_core import ProducerCore


def warn_of_unsent(core: ProducerCore) -> None:
    """Warn of records that stay queued because the producer was never closed.

    A RuntimeWarning, as for a coroutine that was never awaited: Python shows it by default, also while the interpreter
    exits and logging may have ended. A ResourceWarning would be hidden.
    """
    counts: Counter[str] = Counter()
    for batch in core.unfinished():
        batch.outcome.is_read = True  # suppresses the message per batch
        counts[batch.queue.topic_partition.topic] += batch.outcome.records
    if counts:
        topics = ", ".join(f"{count} for topic {topic!r}" for topic, count in sorted(counts.items()))
        warnings.warn(
            f"a producer ended without close(): {counts.total()} queued records were not acknowledged and may be lost "
            f"({topics}). Use the producer in a `with` block, or call close() before the program ends.",
            RuntimeWarning,
            stacklevel=2,
        )
