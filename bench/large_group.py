"""One group whose members are in several client processes: the time of a rebalance, as the members themselves see it.

Each process runs the job `members` (bench/loads/tidelog_coordination_load.py). After `go` it starts its members at once
and sends, whenever some of them got or gave up partitions, `{"at": time of the newest change, "has": {"MEMBER":
[PARTITION, ...]}}`. It reads `leave` (its first member closes) and `end` (all close; the answer to the job follows).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from bench.clients import ANSWER_SECONDS, Client, Clients, next_answer
from bench.loads.coordination import Shares, ids
from bench.loads.job import Job
from bench.systems.system import SystemFailed


class Rebalance(NamedTuple):
    """Seconds from the start of the members."""

    joined: float
    """Until each member has its share, and no partition two owners or none."""
    stable: float
    """Until the coordinator says, in addition, that the group is stable with all members."""
    left: float
    """From the start of `close()` of one member until the others have its partitions."""
    lost: int
    """How often a member was fenced meanwhile."""
    cpu_nodes: float
    """Processor time from the start to the end of the last member, seconds."""
    cpu_clients: float

    def describe(self) -> str:
        return (
            f"joined {self.joined:.1f} s, stable {self.stable:.1f} s, one left {self.left:.2f} s; fenced {self.lost} "
            f"times; processor time of the nodes {self.cpu_nodes:.1f} s, of the clients {self.cpu_clients:.1f} s"
        )


def rebalance(clients: Clients, kind: str, job: Job, processes: int) -> Rebalance:
    """Start `job.consumers` members in so many processes, and let one leave. job: names the topic, with at least a
    partition for each member; `seconds` is the limit of each step. Raises SystemFailed."""
    (group,) = ids("large", 1)
    share, rest = divmod(job.consumers, processes)
    jobs = [job._replace(do="members", group=group, consumers=share + (number < rest)) for number in range(processes)]
    talk = _Talk(clients.take(kind, processes + 1)[-1], job._replace(do="wait_stable", group=group))
    work = clients.work([(kind, each) for each in jobs], talk)
    lost = sum(answer["lost"] for answer in work.answers)
    return Rebalance(talk.joined, talk.stable, talk.left, lost, work.cpu_nodes, work.cpu_clients)


class _Talk:
    """What the parent says to the processes of the members, and to one that describes the group."""

    def __init__(self, describer: Client, job: Job) -> None:
        self._describer, self._job = describer, job
        self.joined = self.stable = self.left = 0.0

    def __call__(self, processes: Sequence[Client]) -> None:
        shares, job = _SharesOfProcesses(processes, self._job.partitions), self._job
        began = time.perf_counter()
        self.joined = shares.wait_shared(job.consumers, job.seconds) - began
        self._describer.tell(job.line())
        self.stable = self._describer.answer(job.seconds + ANSWER_SECONDS)["at"] - began
        left_at = time.perf_counter()
        processes[0].tell("leave\n")
        self.left = shares.wait_shared(job.consumers - 1, job.seconds) - left_at
        for process in processes:
            process.tell("end\n")


class _SharesOfProcesses:
    """Which partitions the members of all processes have."""

    def __init__(self, processes: Sequence[Client], partitions: int) -> None:
        self._processes = processes
        self._shares = Shares(partitions)

    def wait_shared(self, members: int, seconds: float) -> float:
        """The time at which so many members have all partitions in equal shares. Raises SystemFailed."""
        changed_at = time.perf_counter()
        deadline = changed_at + seconds
        while not self._shares.are_shared(members):
            found = next_answer(self._processes, max(0.0, deadline - time.perf_counter()))
            if found is None:
                raise SystemFailed(f"after {seconds:g} s {members} members are to share: {self._shares.summary}")
            process, changes = found
            changed_at = max(changed_at, changes["at"])
            for member, partitions in changes["has"].items():
                self._shares.has((process.process.pid, member), frozenset(partitions))
        return changed_at
