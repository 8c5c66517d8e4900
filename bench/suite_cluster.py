"""Three nodes on this machine as clients see them, beside peers in the same run: three replicas, two in sync, acks=all.

Nodes and client processes share the machine's cores. Systems take turns within each figure, and the order changes from
one to the next; only one is busy at a time. The others stay idle and are not stopped, because a system whose nodes are
paused elects new leaders afterwards; the part `idle` shows what they cost meanwhile. Topics exist only while they are
measured. A figure names its durability, and the peer with its client: its baseline is the peer's value. A load sends
for some seconds and ends when all is acknowledged; its rate counts what was acknowledged.

Parts: idle (processor and memory with no partitions and with many), latency (one record at a time, alone and beside
other work), produce (full speed: partitions, keys, new and written before, client processes), batches (processor of the
nodes for each batch of 50 records), fsync (against page cache), consume, clients (4 and 50 producing processes, 200
consumers of one partition), failover (kill -9), calls (ways to send and receive many records in one process), limits
(against the raw limits of the machine).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

from bench import cluster_limits
from bench.clients import Clients, pool
from bench.cluster_calls import calls
from bench.cluster_contest import FULL, QUICK, Contest, Lane
from bench.cluster_crowds import clients, failover
from bench.cluster_loads import batches, consume, fsync, idle, latency, produce
from bench.cluster_parts import PARTS
from bench.figure import Figure, Run
from bench.systems import PEERS
from bench.systems.system import PeerMissing, System, SystemFailed
from bench.systems.tidelog_nodes import Tidelog

_MEASURED = {
    "idle": idle,
    "latency": latency,
    "produce": produce,
    "batches": batches,
    "fsync": fsync,
    "consume": consume,
    "clients": clients,
    "failover": failover,
    "calls": calls,
}


def figures(run: Run) -> Iterator[Figure]:
    """All figures of the chosen parts; takes some 14 minutes with one peer, some 8 without.

    Raises SystemFailed at the end if Tidelog failed somewhere.
    """
    chosen = [part for part in PARTS if not run.only or part in run.only]
    with ExitStack() as stack:
        contest = Contest(run, QUICK if run.quick else FULL, list(_lanes(run, stack)))
        contest.warm_up()
        for part in chosen:
            if part in _MEASURED:
                yield from contest.unless_failed(_MEASURED[part](contest))
    if "limits" in chosen:
        yield from cluster_limits.figures(run)
    contest.ensure_complete()


def _lanes(run: Run, stack: ExitStack) -> Iterator[Lane]:
    """Tidelog, then the peers that this machine has. Each ends with the stack."""
    yield _start(run, stack, stack.enter_context(Tidelog(run.scratch / "tidelog")))
    for name in run.peers:
        try:
            yield _start(run, stack, stack.enter_context(PEERS[name](run.scratch / name)))
        except (PeerMissing, SystemFailed) as error:
            run.say(f"{name} is left out: {' '.join(str(error).split())[:300]}")


def _start(run: Run, stack: ExitStack, system: System) -> Lane:
    run.versions[system.name] = system.version
    found: Clients = stack.enter_context(pool(system, run.others))
    return Lane(system, found)
