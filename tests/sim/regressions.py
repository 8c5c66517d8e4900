"""Random worlds that found a defect; `make test-deep` runs each again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tests.sim.judged import Selected, plan_of
from tests.sim.plan import Plan

PLAIN: Final = Selected(coordinated=False)
"""These worlds were found before there were coordinators."""
COORDINATED: Final = Selected(coordinated=True)
AS_SEEDED: Final = Selected()
"""The seed says whether there are coordinators."""
FIVE_NODES: Final = Selected(nodes=5, coordinated=True)


@dataclass(frozen=True, slots=True)
class FoundBy:
    """A world and the defect that it found. The world of a seed changes with plan.py, so a lasting test needs a
    story."""

    seed: int
    defect: str
    selected: Selected = PLAIN

    @property
    def plan(self) -> Plan:
        return plan_of(self.seed, self.selected)

    @property
    def command(self) -> str:
        """It replays the world."""
        return f"python -m tests.sim --seed {self.seed}{self.selected.options}"

    def __str__(self) -> str:
        return f"{self.seed}{self.selected.options}".replace(" ", "")


WORLDS: Final = (
    FoundBy(6005, "a log was truncated between the decision of retention and the removal of its segments"),
    FoundBy(
        212803891,
        "a log of format v0 whose epoch file a bit flip had destroyed led without epochs: others truncated",
    ),
    FoundBy(338508894, "a checker required newer epochs' records of a leader that learned late of its election"),
    FoundBy(781919331, "the final check looked for a replica that had moved during the reads of other partitions"),
    FoundBy(1077190129, "the final check required the log start of the leader, which may not know of a deletion"),
    FoundBy(
        1405515323,
        "a flipped bit took the log start away: the log began below its first epoch, and followers restarted",
    ),
    FoundBy(2207544747, "a resend was appended again: retention and a power loss had removed its producer's state"),
    FoundBy(
        4109490350,
        "a volume was emptied although an uncommitted record named its node as a member of an in-sync set",
    ),
    FoundBy(
        4109490364,
        "a checker required records whose loss an unclean election of a damaged replica had accepted",
    ),
    FoundBy(
        3423092464,
        "the simulator searched for a byte to flip in zeros that a power loss left behind a log's batches",
    ),
    FoundBy(
        2593608367,
        "after an unclean election the new leader was compared from its watermark, not the common prefix",
    ),
    FoundBy(
        366,
        "a stream that broke without a batch of its own, while its node's window had a free place, ended the producer",
        COORDINATED,
    ),
    FoundBy(
        344,
        "a checker judged a commit under way by a newer assignment than the one that it belongs to",
        COORDINATED,
    ),
    FoundBy(345, "a client that ended just as the faults ended was not replaced: its group had no member", COORDINATED),
    FoundBy(354, "as 345, in a group of four partitions", COORDINATED),
    FoundBy(
        70273799,
        "a cluster counted as healed while a replica was offline, because its log had just been found corrupt",
        COORDINATED,
    ),
    FoundBy(
        88420033,
        "a commit that arrived after its member had given it up and committed more set the committed offset back",
        FIVE_NODES,
    ),
    FoundBy(
        88420113,
        "a worker that was told to stop and still had its partitions counted as their owner, and was not replaced",
        FIVE_NODES,
    ),
    FoundBy(
        497190779,
        "a log of format v1 whose log start a flipped bit had taken away led with records of unknown epochs: followers "
        "restarted below what they had committed",
        AS_SEEDED,
    ),
    FoundBy(
        497190889,
        "the first record of a member that had been removed was judged by what its successor had committed",
        AS_SEEDED,
    ),
    FoundBy(
        1266477587,
        "a node ended by a call that began before its disk was repaired and failed after it was not excused",
        AS_SEEDED,
    ),
    FoundBy(
        1266477810,
        "a replica returned after compaction had removed the marker of a transaction that was open in its log: the "
        "next marker of the producer committed what was aborted",
        AS_SEEDED,
    ),
    FoundBy(
        1260769535,
        "what retention removed was judged by the clock of the removal: a stalled disk had held it since before a jump",
        AS_SEEDED,
    ),
    FoundBy(
        2383114571,
        "the bits of a log of format v1 were restored, but not the epochs that recovery had removed because of them: a "
        "member truncated what was committed",
        AS_SEEDED,
    ),
    FoundBy(
        3138374850,
        "the last replica that counted had set aside a file with a flipped bit, which was not restored: no operator "
        "accepted the loss, and producers waited for ever",
        AS_SEEDED,
    ),
    FoundBy(
        1212013531,
        "a stopping node that was about to leave the in-sync set counted as a copy beside one with a flipped bit",
        AS_SEEDED,
    ),
    FoundBy(
        472268867,
        "the checkers: a clock was set back while a retention round was at the disk, which then counted as a loss",
        AS_SEEDED,
    ),
    FoundBy(
        4016236297,
        "the checkers: results in the open transaction of a worker that was killed counted as committed",
        AS_SEEDED,
    ),
    FoundBy(
        2026113683,
        "the checkers: what an unclean leader knew as committed counted as committed by its set of one",
        Selected(nodes=5),
    ),
    FoundBy(
        472268856,
        "the checkers: a commit told of a loss, and what was returned since was returned again, as documented",
        AS_SEEDED,
    ),
    FoundBy(
        2026112990,
        "the simulated leader of a classic group did not assign partitions that were added to its topic",
        AS_SEEDED,
    ),
    FoundBy(
        2294359403,
        "a message of format v1 whose offset had rotted was given to a follower, which ended where the leader did: the "
        "committed message that lay there was missing",
        AS_SEEDED,
    ),
    FoundBy(
        3545990751,
        "the checkers: a leader that was cut off, and did not know of the next one, had records that this one deleted",
        AS_SEEDED,
    ),
)
