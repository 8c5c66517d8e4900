"""Replicas that are made anew within one life of their process: what they said before counts no more.

A process that has fetched a replica's records loses them, by a reassignment or by damage, and keeps its incarnation.
Told as in stories.py; node 0 is the quorum's only voter and holds no replica.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.sim.controller_stories import away_from_voter
from tests.sim.network import Envelope
from tests.sim.stories import TOPIC, held, write
from tests.sim.world import Simulation
from tidelog.v1 import data_pb2


def says_it_has(count: int) -> Callable[[Envelope], bool]:
    """Does a follower say that its log reaches so far, or that it holds so much?"""

    def matches(envelope: Envelope) -> bool:
        said: data_pb2.FetchRequest = envelope.message  # type: ignore[assignment]
        ends = [asked.fetch_offset for asked in said.partitions] + [report.held_offset for report in said.held]
        return any(end >= count for end in ends)

    return matches


def replica_moved_away_and_back(sim: Simulation) -> None:
    """Rule 2: a replica that has all records is moved away, which deletes them, and back again. A fetch of its first
    stay arrives at the leader now: it does not count for the second."""
    leader, *others = away_from_voter(sim, 5, replicas=3, min_insync=1)
    (comes,) = [node for node in sim.nodes[1:] if node not in (leader, *others)]
    write(sim, 0, "a", 5)
    late = sim.hold("Data.FetchStream", source=comes, target=leader, when=says_it_has(5))
    sim.reassign(TOPIC, 0, leader, *others, comes)
    sim.run_until(
        lambda: late.count > 0 and held(sim, comes, 0) == 5, what="its words that it has all are on their way"
    )
    sim.reassign(TOPIC, 0)
    sim.run_until(lambda: sim.replica(comes, TOPIC) is None, what="its log is gone")
    sim.reassign(TOPIC, 0, leader, *others, comes)
    sim.run_until(lambda: sim.replica(comes, TOPIC) is not None, what="its log is made anew")
    late.release()
    sim.run_until(lambda: comes in sim.isr(TOPIC), what="it is in sync")
    sim.must_heal()


ALL = (replica_moved_away_and_back,)
