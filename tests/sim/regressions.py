"""Seeds of random worlds that found a defect; `make test` runs each again."""

from __future__ import annotations

from typing import Final

SEEDS: Final[dict[int, str]] = {
    6005: "a log was truncated between the decision of retention and the removal of its segments",
    212803891: "a log of format v0 whose epoch file a bit flip had destroyed led without epochs: others truncated",
    338508894: "a checker required newer epochs' records of a leader that learned late of its election",
    781919331: "the final check looked for a replica that had moved during the reads of other partitions",
    1077190129: "the final check required the log start of the leader, which may not know of a deletion",
    1405515323: "a flipped bit took the log start away: the log began below its first epoch, and followers restarted",
    2207544747: "a resend was appended again: retention and a power loss had removed its producer's state",
    4109490350: "a volume was emptied although an uncommitted record named its node as a member of an in-sync set",
    4109490364: "a checker required records whose loss an unclean election of a damaged replica had accepted",
    3423092464: "the simulator searched for a byte to flip in zeros that a power loss left behind a log's batches",
    2593608367: "after an unclean election the new leader was compared from its watermark, not the common prefix",
}
"""By seed: the defect. The world of a seed changes with plan.py, so a lasting test needs a story (stories.py)."""
