"""Seeds of random worlds that once found something; each is run again by `make test`."""

from __future__ import annotations

from typing import Final

SEEDS: Final[dict[int, str]] = {
    6005: "a log was truncated between the decision of retention and the removal of its segments",
    338508894: "a checker asked of a leader that heard late what leaders of newer epochs had committed",
    781919331: "healing looked for a replica where it had been before the reads of other partitions",
    1077190129: "healing asked replicas to start where their leader does, which need not have heard of a deletion",
    2207544747: "a resend was appended again: retention and a power cut had taken what was known of its producer",
    2593608367: "after an unclean election the new leader was compared from its watermark on, not from what all share",
}
"""By seed: what it found. What a seed means changes with plan.py: a find worth keeping becomes a story (stories.py)."""
