"""Consume-transform-produce while its parts fail: each record has exactly one committed result.

Workers are real consumers and transactional producers (pipelines.py). Sources: KIP-447, KIP-890.
"""

from __future__ import annotations

from collections.abc import Callable

from testbed.sim.coordination import GROUPS, TRANSACTIONS
from testbed.sim.world import Simulation
from tests.sim.group_stories import (
    begin,
    coordinator_of,
    transaction_coordinator_of,
    wait_other_coordinator,
    write_all,
)
from tests.sim.pipelines import Pipeline
from tests.sim.stories import TOPIC

RESULTS = "results"
NAME = "pipeline"


def pipeline(sim: Simulation, *, nodes: int = 4, workers: int = 2, pause: float = 0.0) -> Pipeline:
    """A cluster with a pipeline whose workers have begun. pause: as of SimWorker."""
    begin(sim, nodes=nodes, partitions=4)
    sim.create_topic(RESULTS, partitions=2, min_insync=2)
    found = Pipeline(sim, TOPIC, RESULTS, name=NAME)
    for number in range(workers):
        found.worker(number, pause=pause)
    found.group.settle()
    write_all(sim, "first-", 3, 4)
    sim.run_until(lambda: sum(worker.committed for worker in found.workers) >= 1, what="a transaction is committed")
    return found


def ends(line: Pipeline) -> None:
    """Everything gets its result, the workers end, and the cluster is sound."""
    line.finish()
    running = [worker for worker in line.workers if worker.client.process.alive]
    for worker in running:
        worker.stop()
    line.sim.run_until(lambda: all(worker.is_over for worker in running), what="every worker has ended")
    line.sim.must_heal()


def workers_are_killed(sim: Simulation) -> None:
    """Each worker is killed in turn within a transaction, and replaced: the next one takes over its transactional
    id, and reads from the offsets that were committed with the results."""
    line = pipeline(sim, pause=0.3)
    for number in range(2):
        write_all(sim, f"{number}-", 3, 4)
        sim.run_for(0.2)
        line.workers[number].kill()
        line.worker(number)
        line.group.settle()
    write_all(sim, "last-", 2, 4)
    ends(line)


def paused_worker_is_replaced(sim: Simulation) -> None:
    """A worker is paused within a transaction until others have its partitions and have written their results. When it
    continues, neither its results nor its offsets count."""
    line = pipeline(sim, workers=2)
    first, second = line.workers
    markers = sim.hold("Transactions.EndTxn", when=lambda envelope: envelope.source == first.client.process.name)
    write_all(sim, "b", 3, 4)
    sim.run_until(lambda: markers.count > 0, what="the first worker is about to commit")
    first.pause()
    sim.run_until(
        lambda: second.member is not None and second.member.owned == set(line.group.places()),
        within=15,
        what="the second worker has all partitions",
    )
    line.worker(0)
    sim.run_for(3)
    markers.release()
    first.resume()
    write_all(sim, "c", 2, 4)
    ends(line)


def offsets_of_a_fenced_worker(sim: Simulation) -> None:
    """The offsets of a transaction are on their way while their worker is fenced in its group, and others write the
    results of the same records. They are refused when they arrive, and the worker's transaction cannot commit."""
    line = pipeline(sim, workers=2)
    first, second = line.workers
    offsets = sim.hold("Groups.TxnOffsetCommit", when=lambda envelope: envelope.source == first.client.process.name)
    write_all(sim, "b", 3, 4)
    sim.run_until(lambda: offsets.count > 0, what="offsets are on their way")
    first.pause()
    sim.run_until(
        lambda: second.member is not None and second.member.owned == set(line.group.places()),
        within=15,
        what="the second worker has all partitions",
    )
    sim.run_for(0.5)
    offsets.release()
    sim.run_for(0.5)
    first.resume()
    write_all(sim, "c", 2, 4)
    ends(line)


def results_cannot_be_queued(sim: Simulation) -> None:
    """A new worker has read records, and its producer does not learn the partitions of the target within the time that
    a send may take. The transaction must end without them: a worker that went on would commit their offsets alone."""
    line = pipeline(sim, workers=1)
    second = line.worker(1)
    sim.run_until(lambda: second.member is not None and bool(second.member.owned), what="the new worker has partitions")
    answers = sim.hold("Admin.GetMetadata", when=lambda envelope: envelope.source == second.client.process.name)
    write_all(sim, "b", 3, 4)
    sim.run_until(lambda: answers.count > 0, what="its producer asks for the target")
    sim.run_for(6)
    answers.release()
    write_all(sim, "c", 2, 4)
    ends(line)


def both_coordinators_are_killed(sim: Simulation) -> None:
    """The coordinators of the group and of the transactions are killed one after the other, twice, while results are
    written."""
    line = pipeline(sim, pause=0.1)
    for number in range(2):
        write_all(sim, f"{number}-", 2, 4)
        former = coordinator_of(sim, NAME)
        sim.kill(former)
        wait_other_coordinator(sim, former, NAME, GROUPS)
        sim.restart(former)
        write_all(sim, f"more-{number}-", 2, 4, asking=[node for node in sim.nodes if node != former])
        wait_in_sync(sim)
        former = transaction_coordinator_of(sim, f"{NAME}-0")
        sim.kill(former)
        wait_other_coordinator(sim, former, f"{NAME}-0", TRANSACTIONS)
        sim.restart(former)
        wait_in_sync(sim)
    ends(line)


def wait_in_sync(sim: Simulation) -> None:
    """Wait until all replicas of all partitions are in sync."""
    sim.run_until(
        lambda: all(set(state.isr) == set(state.replicas) for state in sim.image().partitions()),
        what="all replicas are in sync",
    )


def all_machines_lose_power_at_once(sim: Simulation) -> None:
    """All machines lose power while transactions are open, prepared and complete: each stays what it was, and the
    workers continue."""
    line = pipeline(sim, pause=0.2)
    write_all(sim, "b", 3, 4)
    sim.run_for(0.3)
    for node in sim.nodes:
        sim.power_off(node, forget_all=True)
    for node in sim.nodes:
        sim.restart(node)
    line.group.settle()
    write_all(sim, "c", 2, 4)
    ends(line)


ALL: tuple[Callable[[Simulation], None], ...] = (
    workers_are_killed,
    paused_worker_is_replaced,
    offsets_of_a_fenced_worker,
    results_cannot_be_queued,
    both_coordinators_are_killed,
    all_machines_lose_power_at_once,
)
