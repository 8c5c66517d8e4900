"""What clients may not do with the internal topics of coordinators.

They may read them, and change settings that do no harm. Appends are refused by the log (storage/log/log_writer.py).
"""

from __future__ import annotations

from typing import Final

from tidelog.errors import InvalidTopic
from tidelog.types import INTERNAL_TOPICS

KEPT_SETTINGS: Final = frozenset(("cleanup.policy", "durability", "message.format", "message.timestamp.type"))
"""Topic settings on which coordinators depend."""


def ensure_not_internal(topic: str, why: str) -> None:
    """Raise InvalidTopic for an internal topic. why: the change is refused."""
    if topic in INTERNAL_TOPICS:
        raise InvalidTopic(f"{topic} is an internal topic of the cluster, and this change is refused: {why}")
