"""Stories of failover: a killed process is replaced at once, because its address refuses connections; a process that is
paused, disconnected or behind a firewall is not mistaken for a dead one.
"""

from __future__ import annotations

from testbed.sim.machine import machine_name
from testbed.sim.network import Envelope
from testbed.sim.world import Simulation
from tests.sim.controller_stories import moving
from tests.sim.quorum_stories import active, core, voters_but, wait_active
from tests.sim.stories import TOPIC, fenced, write

AT_ONCE = 0.6
"""Far less than a session (2 s): probes, reports, a commit and a retry of the client, with delays of the network."""


def reject(sim: Simulation, source: int, target: int) -> None:
    """A firewall rejects the connections from source to target."""
    sim.network.reject(machine_name(source), machine_name(target))


def break_connections(sim: Simulation, node: int) -> None:
    """A proxy resets every connection to the node."""
    for connection in list(sim.network.connections):
        if any(connection.opened_over(sim.network.link(machine_name(each), machine_name(node))) for each in sim.nodes):
            connection.break_both("reset by a proxy", (0, 1_000))


def node_epoch(sim: Simulation, node: int) -> int:
    return next(int(each.node_epoch) for each in sim.image().nodes.values() if each.node_id == node)


def killed_leader_is_fenced_at_once(sim: Simulation) -> None:
    """A leader that is not the controller is killed: two nodes are refused, and writes continue without waiting for
    its session."""
    sim.start(nodes=3, voters=3, min_insync=2, partitions=3)
    victim = voters_but(sim, active(sim))[0]
    p = sim.led_by(TOPIC, victim)
    write(sim, p, "a", 5)
    sim.kill(victim)
    sim.run_until(lambda: fenced(sim, victim), within=AT_ONCE, what="the dead node is fenced at once")
    sent = sim.produce(TOPIC, b"after", partition=p)
    sim.run_until(lambda: sent.done, within=AT_ONCE, what="a write is acknowledged again")
    sim.restart(victim)
    sim.must_heal()


def killed_controller_is_replaced_at_once(sim: Simulation) -> None:
    """The active controller, which leads a partition too, is killed: the voters whose connections are refused elect
    another one without waiting for their timeouts, and it fences the dead node."""
    sim.start(nodes=3, voters=3, min_insync=2, partitions=3)
    old = active(sim)
    p = sim.led_by(TOPIC, old)
    write(sim, p, "a", 5)
    sim.kill(old)
    sim.run_until(lambda: active(sim) not in (-1, old), within=1.0, what="another controller is elected at once")
    sim.run_until(lambda: fenced(sim, old), within=AT_ONCE, what="the dead node is fenced at once")
    sent = sim.produce(TOPIC, b"after", partition=p)
    sim.run_until(lambda: sent.done, within=AT_ONCE, what="a write is acknowledged again")
    sim.restart(old)
    sim.must_heal()


def paused_leader_keeps_its_session(sim: Simulation) -> None:
    """A paused process still listens, also if its connections break: it is not fenced before its session ends. If it
    leads the quorum, no other node is elected before the fetch timeout (1 s) ends; half of it may be over when the
    pause begins."""
    sim.start(nodes=3, voters=3, min_insync=2, partitions=3)
    controller = active(sim)
    state = core(sim, controller)
    assert state is not None
    epoch = state.epoch
    for node, seconds in ((voters_but(sim, controller)[0], 1.4), (controller, 0.4)):
        sim.pause(node)
        break_connections(sim, node)
        sim.never(
            lambda node=node: fenced(sim, node),  # type: ignore[misc]
            seconds=seconds,
            what="a paused node was fenced before its session ended",
        )
        sim.resume(node)
        sim.run_for(3)
    assert (active(sim), state.epoch) == (controller, epoch), "a pause began another epoch"
    sim.must_heal()


def silent_machine_keeps_its_session(sim: Simulation) -> None:
    """A machine without power refuses nothing: its node is fenced when its session ends, and not before."""
    sim.start(nodes=3, voters=3, min_insync=2, partitions=3)
    victim = voters_but(sim, active(sim))[0]
    sim.run_for(1)
    sim.power_off(victim)
    sim.never(lambda: fenced(sim, victim), seconds=1.5, what="a silent node was fenced before its session ended")
    sim.run_until(lambda: fenced(sim, victim), within=2, what="its session ends")
    sim.restart(victim)
    sim.must_heal()


def one_bad_link_fences_no_node(sim: Simulation) -> None:
    """A firewall rejects the connections of one node to another. The controller's own probe is accepted, so there is
    one witness only."""
    sim.start(nodes=3, voters=3, min_insync=1, partitions=3)
    witness, healthy = voters_but(sim, active(sim))
    reject(sim, witness, healthy)
    sim.never(lambda: fenced(sim, healthy), seconds=5, what="one witness fenced a healthy node")
    sim.must_heal()


def bad_link_to_the_controller_begins_no_epoch(sim: Simulation) -> None:
    """A firewall rejects the connections of one voter to the active controller. The other voter hears from it and
    grants no pre-vote."""
    sim.start(nodes=3, voters=3, min_insync=1, partitions=3)
    controller = active(sim)
    state = core(sim, controller)
    assert state is not None
    epoch = state.epoch
    reject(sim, voters_but(sim, controller)[0], controller)
    sim.run_for(5)
    assert (active(sim), state.epoch) == (controller, epoch), "one bad link began another epoch"
    assert not fenced(sim, controller), "one bad link fenced the controller"
    sim.must_heal()


def rejected_node_is_fenced_once(sim: Simulation) -> None:
    """A firewall rejects all connections to a node that runs: it is fenced by two witnesses, contradicts them by its
    next heartbeat, and is not fenced again by the same evidence."""
    sim.start(nodes=3, voters=3, min_insync=1, partitions=3)
    controller = active(sim)
    victim = voters_but(sim, controller)[0]
    for node in sim.nodes:
        if node != victim:
            reject(sim, node, victim)
    sim.run_until(lambda: fenced(sim, victim), within=AT_ONCE, what="two nodes are refused")
    sim.run_until(lambda: not fenced(sim, victim), within=2, what="its heartbeats end the fencing")
    sim.never(lambda: fenced(sim, victim), seconds=5, what="contradicted reports fenced it again")
    sim.must_heal()


def late_report_of_a_former_process(sim: Simulation) -> None:
    """A process is killed and started again at once. The reports of its end arrive after the new process is in
    service: they name the former registration."""
    sim.start(nodes=4, voters=1, topics=())
    sim.create_topic(TOPIC, partitions=4, replicas=4)
    controller = wait_active(sim)
    victim = next(node for node in sim.nodes if node != controller)
    held: set[str] = set()

    def first_report(envelope: Envelope) -> bool:
        first = bool(envelope.message.refused) and envelope.source not in held
        held.update([envelope.source] if first else [])
        return first

    late = sim.hold("Controller.Heartbeat", when=first_report)
    before = node_epoch(sim, victim)
    sim.kill(victim)
    sim.run_until(lambda: late.count == 2, within=2, what="both other nodes report a refused connection")
    sim.restart(victim)
    sim.run_until(
        lambda: node_epoch(sim, victim) > before and not fenced(sim, victim), within=5, what="the new process serves"
    )
    late.release()
    sim.never(lambda: fenced(sim, victim), seconds=1.5, what="a report about a former process fenced its successor")
    sim.must_heal()


def late_heartbeat_of_a_dead_process(sim: Simulation) -> None:
    """A process ends while one of its heartbeats is on the way, once with its machine and once without it. The
    heartbeat arrives after the fencing and does not end it: no partition is given to the dead node."""
    sim.start(nodes=3, voters=1, min_insync=2, partitions=3)
    controller = wait_active(sim)
    victim = next(node for node in sim.nodes if node != controller)
    for end in (sim.kill, sim.power_off):
        late = sim.hold("Controller.Heartbeat", source=victim)
        sim.run_until(lambda late=late: late.count > 0, within=2, what="a heartbeat is on the way")  # type: ignore[misc]
        end(victim)
        sim.run_until(lambda: fenced(sim, victim), within=3, what="the dead node is fenced")
        late.release()
        sim.never(lambda: not fenced(sim, victim), seconds=1, what="a heartbeat of a dead process ended its fencing")
        sim.restart(victim)
        sim.run_until(lambda: not fenced(sim, victim), within=5, what="the next process serves")
    sim.must_heal()


def dead_node_is_connected_to_the_controller_alone(sim: Simulation) -> None:
    """A node that is no voter shares its only partition with the controller's node: it leads, later it follows. It is
    killed each time. Only the controller's node notices; another node probes the address when it is asked to."""
    sim.start(nodes=4, voters=3, topics=())
    controller = wait_active(sim)
    victim = next(node for node in sim.nodes if node not in voters_but(sim, -1))
    sim.create_topic(TOPIC, replicas=2, min_insync=1)
    sim.run_for(1)  # any node may be asked to reassign it, also one without a replica, which hears of it last
    for leader, follower in ((victim, controller), (controller, victim)):
        sim.reassign(TOPIC, 0, leader, follower)
        sim.run_until(lambda: not moving(sim) and sim._whole(TOPIC), within=30, what="the partition has moved")
        if sim.leader(TOPIC) != leader:
            sim.elect(TOPIC, 0)
        sim.run_until(lambda leader=leader: sim.leader(TOPIC) == leader, within=5, what="it is led")  # type: ignore[misc]
        sim.run_for(1)
        write(sim, 0, f"led by {leader}, ", 5)
        sim.kill(victim)
        sim.run_until(lambda: fenced(sim, victim), within=1, what="the dead node is fenced before its session ends")
        write(sim, 0, f"without {leader}, ", 5)
        sim.restart(victim)
        sim.run_until(lambda: not fenced(sim, victim) and sim._whole(TOPIC), within=10, what="it is in sync again")
    sim.must_heal()


def rapid_restart(sim: Simulation) -> None:
    """A process is killed and started again within milliseconds, again and again: each time the new process is soon in
    service and stays there."""
    sim.start(nodes=3, voters=3, min_insync=2, partitions=3)
    victim = voters_but(sim, active(sim))[0]
    for pause in (0.0, 0.01, 0.05, 0.2):
        before = node_epoch(sim, victim)
        sim.kill(victim)
        sim.restart(victim, after=pause)
        sim.run_until(
            lambda before=before: node_epoch(sim, victim) > before and not fenced(sim, victim),  # type: ignore[misc]
            within=5,
            what="the new process serves",
        )
        sim.never(lambda: fenced(sim, victim), seconds=1, what="the new process was fenced for its predecessor")
    sim.must_heal()


ALL = (
    killed_leader_is_fenced_at_once,
    killed_controller_is_replaced_at_once,
    paused_leader_keeps_its_session,
    silent_machine_keeps_its_session,
    one_bad_link_fences_no_node,
    bad_link_to_the_controller_begins_no_epoch,
    rejected_node_is_fenced_once,
    late_report_of_a_former_process,
    late_heartbeat_of_a_dead_process,
    dead_node_is_connected_to_the_controller_alone,
    rapid_restart,
)
