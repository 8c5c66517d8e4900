"""Seeds of random worlds that once found something; each is run again by `make test`."""

from __future__ import annotations

from typing import Final

SEEDS: Final[dict[int, str]] = {}
"""By seed: what it found. What a seed means changes with plan.py: a find worth keeping becomes a story (stories.py)."""
