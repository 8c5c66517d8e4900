"""Seeds of random worlds that once found something; each is run again by `make test`."""

from __future__ import annotations

from typing import Final

SEEDS: Final[dict[int, str]] = {
    5005: "a fetcher told to stop while it connected served its stream for ever, so the node never stopped",
}
"""By seed: what it found."""
