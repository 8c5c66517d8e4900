"""Stories of nodes whose process is slow: it answers, but everything is late, its timers too.

Setup as in stories.py. With 30 ms a callback it is fast enough for heartbeats, and too slow to reach within a second
where the leader was; with 150 ms it is too slow for heartbeats as well.
"""

from __future__ import annotations

from collections.abc import Callable

from node.replication_settings import ReplicationConfig
from testbed.sim.workload import Fate, Sent
from testbed.sim.world import Simulation
from tests.sim.quorum_stories import wait_active
from tests.sim.replication_stories import away_from_the_voter
from tests.sim.stories import TOPIC, committed, durable_offset, epoch, fenced, leads
from tidelog.types import Millis

BEHIND_MS = 30.0
LOST_MS = 150.0


def keep_writing(sim: Simulation, p: int) -> Callable[[], list[Sent]]:
    """A client that writes a record every 50 ms until the returned function is called, which returns the records
    sent."""
    client = sim.client()
    sent: list[Sent] = []
    stopped: list[bool] = []

    async def produce() -> None:
        while not stopped:
            one = Sent(TOPIC, p, f"on and on {len(sent)}".encode(), -1, drive=sim.run_until)
            sim.checkers.sending(one)
            sent.append(one)
            await client.produce(one)
            await client.sleep(0.05)

    task = client.start(produce(), "writes continuously")

    def stop() -> list[Sent]:
        stopped.append(True)
        sim.run_until(task.done, within=30, what="the last record has its answer")
        return sent

    return stop


def slow_follower_falls_behind(sim: Simulation) -> None:
    """Rule 4: a follower is too slow to keep up, but sends heartbeats. It leaves the set for its lag and the others
    continue. Once it is fast enough it catches up and joins again."""
    sim.start(nodes=4, min_insync=2, partitions=12, replication=ReplicationConfig(lag_ms_max=Millis(1_000)))
    p, (leader, follower, _) = away_from_the_voter(sim)
    stop = keep_writing(sim, p)
    sim.run_until(lambda: durable_offset(sim, follower, p) > 20, what="there is something to be behind with")
    sim.slow_process(follower, BEHIND_MS)
    sim.run_until(lambda: follower not in sim.isr(TOPIC, p), what="the slow follower is removed for its lag")
    assert not fenced(sim, follower)
    before = committed(sim, p)
    sim.run_until(lambda: committed(sim, p) > before + 10, within=6, what="the others continue without it")
    assert durable_offset(sim, follower, p) < durable_offset(sim, leader, p)
    sim.slow_process(follower, 0)
    sim.run_until(lambda: follower in sim.isr(TOPIC, p), what="it is in sync again")
    assert {sent.fate for sent in stop()} == {Fate.ACKNOWLEDGED}
    sim.must_heal()


def slow_leader_is_fenced(sim: Simulation) -> None:
    """Rules 1 and 5: a leader is too slow for its session and does not know yet that another node leads. It
    acknowledges no record that it still appends; nothing acknowledged is lost."""
    sim.start(nodes=4, min_insync=2, partitions=12)
    p, (slow, *others) = away_from_the_voter(sim)
    stop = keep_writing(sim, p)
    sim.run_for(1)
    sim.slow_process(slow, LOST_MS)
    sim.run_until(lambda: fenced(sim, slow), what="the slow leader is fenced")
    sim.run_until(lambda: any(leads(sim, node, p) for node in others), what="another node leads")
    new = next(node for node in others if leads(sim, node, p))
    assert epoch(sim, slow, p) < epoch(sim, new, p), "the slow leader knows of it"
    before = committed(sim, p)
    sim.run_until(lambda: committed(sim, p) > before + 20, within=90, what="the others continue")
    sim.slow_process(slow, 0)
    sim.run_until(lambda: slow in sim.isr(TOPIC, p), what="the old leader is back")
    stop()
    sim.must_heal()


def slow_controller_is_replaced(sim: Simulation) -> None:
    """The active controller is too slow for the other voters. They elect another one. Answers of the old one arrive
    too late to count, and it becomes a follower once it learns of the election."""
    sim.start(nodes=4, voters=3, min_insync=2, partitions=12)
    slow, no_voter = wait_active(sim), 3
    p = sim.partition_where(TOPIC, lambda state: slow not in state.replicas and state.leader == no_voter)
    stop = keep_writing(sim, p)
    sim.slow_process(slow, LOST_MS)
    wait_active(sim, but=slow, within=30)
    sim.kill(no_voter)
    sim.run_until(lambda: sim.leader(TOPIC, p) not in (no_voter, -1), what="the new controller elects leaders")
    before = committed(sim, p)
    sim.run_until(lambda: committed(sim, p) > before + 20, what="writes continue")
    sim.slow_process(slow, 0)
    sim.restart(no_voter)
    stop()
    sim.must_heal()


ALL = (
    slow_follower_falls_behind,
    slow_leader_is_fenced,
    slow_controller_is_replaced,
)
