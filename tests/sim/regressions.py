"""Seeds of random worlds that once found something; each is run again by `make test`."""

from __future__ import annotations

from typing import Final

SEEDS: Final[dict[int, str]] = {
    338508894: "a checker asked of a leader that heard late what leaders of newer epochs had committed",
    2207544747: "a resend was appended again: retention and a power cut had taken what was known of its producer",
}
"""By seed: what it found. What a seed means changes with plan.py: a find worth keeping becomes a story (stories.py)."""

OPEN: Final[dict[int, str]] = {
    20261134: "a replica's log starts above its leader's",
    20261209: "one node alone of three voters holds metadata that are committed",
    1077190129: "a replica's log starts above its leader's",
    2216046829: "a reader of the healed cluster does not come to the end of a partition",
}
"""Seeds that fail and are not understood yet, by what they say: to be mended, then moved up."""
