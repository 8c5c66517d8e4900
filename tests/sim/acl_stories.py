"""Stories of access control lists in a cluster of whole nodes: every node decides by the same rules, whatever ended
meanwhile."""

from __future__ import annotations

from collections.abc import Iterable

from testbed.sim.world import Simulation
from tests.sim.quorum_stories import active, voters_but, wait_active
from tidelog.protocol import methods
from tidelog.protocol.message_mapping import read_message, write_message
from tidelog.protocol.v1 import acl_pb2, admin_pb2
from tidelog.security.acls import AclBinding, AclFilter, AclOperation, AclPermission, PatternType, ResourceType


def rule(principal: str, topic: str = "orders") -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC, topic, PatternType.LITERAL, principal, "*", AclOperation.READ, AclPermission.ALLOW
    )


def create(sim: Simulation, *rules: AclBinding) -> int:
    """Returns how many did not exist."""
    request = admin_pb2.CreateAclsRequest(bindings=[write_message(acl_pb2.AclBinding, each) for each in rules])
    return sim.admin(methods.ADMIN_CREATE_ACLS, request).created


def delete(sim: Simulation, principal: str) -> set[AclBinding]:
    """Returns the removed rules."""
    request = admin_pb2.DeleteAclsRequest(filters=[write_message(acl_pb2.AclFilter, AclFilter(principal=principal))])
    return {read_message(AclBinding, each) for each in sim.admin(methods.ADMIN_DELETE_ACLS, request).bindings}


def rules_of(sim: Simulation, node: int) -> frozenset[AclBinding] | None:
    """The rules by which a node decides; None while it starts."""
    running = sim.machines[node].node
    image = None if running is None else running.image
    return None if image is None else image.acls


def wait_everywhere(sim: Simulation, rules: Iterable[AclBinding]) -> None:
    wanted = frozenset(rules)
    sim.run_until(
        lambda: all(rules_of(sim, node) == wanted for node in sim.nodes if sim.machines[node].up),
        what=lambda: f"each node has the {len(wanted)} rules: {[len(rules_of(sim, node) or ()) for node in sim.nodes]}",
    )


def rules_outlive_elections(sim: Simulation) -> None:
    """The controller is killed while a rule waits for its commit. The operator asks again until it is answered; then
    every node, the old controller too, has each acknowledged rule once and no removed one."""
    sim.start(nodes=3, voters=3, topics=())
    assert create(sim, rule("User:a"), rule("User:b")) == 2
    old = active(sim)
    held = [sim.hold("Quorum.FetchMetadata", target=node, part="answer") for node in voters_but(sim, old)]
    request = admin_pb2.CreateAclsRequest(bindings=[write_message(acl_pb2.AclBinding, rule("User:c"))])
    client = sim.client()
    asked = client.start(client.admin(methods.ADMIN_CREATE_ACLS, request), "an operator adds a rule")
    sim.run_for(0.1)
    assert not asked.done(), "a rule was acknowledged that one voter has"
    sim.power_off(old)
    for each in held:
        each.release()
    wait_active(sim, but=old, within=10)
    sim.run_until(asked.done, within=30, what="the operator is answered")
    assert asked.result().created in (0, 1)
    assert delete(sim, "User:a") == {rule("User:a")}
    sim.restart(old)
    wait_everywhere(sim, [rule("User:b"), rule("User:c")])
    sim.must_heal()


def rules_outlive_snapshots_and_restarts(sim: Simulation) -> None:
    """The nodes write snapshots of the metadata all the time. All nodes lose power, and one its volume: the rules are
    those of the snapshot and of the records behind it."""
    sim.start(nodes=3, voters=3, topics=(), snapshot_bytes=500)
    kept = [rule("User:kept", f"topic-{number}") for number in range(20)]
    for each in kept:
        create(sim, each, rule("User:gone", each.resource_name))
    sim.run_until(lambda: all(has_snapshot(sim, node) for node in sim.nodes), what="each node has a snapshot")
    assert len(delete(sim, "User:gone")) == 20
    wait_everywhere(sim, kept)
    for node in sim.nodes:
        sim.power_off(node)
    for node in sim.nodes:
        sim.restart(node)
    wait_everywhere(sim, kept)
    emptied = voters_but(sim, wait_active(sim, within=10))[0]
    sim.kill(emptied)
    sim.empty(emptied)
    sim.restart(emptied)
    wait_everywhere(sim, kept)
    assert create(sim, *kept, rule("User:new")) == 1
    wait_everywhere(sim, [*kept, rule("User:new")])
    sim.must_heal()


def has_snapshot(sim: Simulation, node: int) -> bool:
    running = sim.machines[node].node
    metadata = None if running is None else running._metadata
    return metadata is not None and metadata.metadata.snapshots.latest is not None


ALL = (rules_outlive_elections, rules_outlive_snapshots_and_restarts)
