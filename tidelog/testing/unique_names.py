"""Names of topics and groups that no other test has used, so that tests can share a cluster."""

from __future__ import annotations

import itertools
import os
import re
from typing import Final

_STEM_MAX: Final = 60
_numbers = itertools.count(1)


def unique_name(stem: str = "topic") -> str:
    """A name for a topic, group or transactional id that this and other processes get once. stem: its readable
    beginning; what a topic's name cannot have becomes `-`."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-")[:_STEM_MAX]
    return f"{readable or 'topic'}-{os.getpid()}-{next(_numbers)}"
