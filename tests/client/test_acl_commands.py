"""`tidelog acl` where ACLs have no effect, and its words for what is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.client.memory_cluster import MemoryCluster, cluster_in_a_thread
from tidelog.cli import main
from tidelog.errors import NodeNotAvailable
from tidelog.protocol.v1 import admin_pb2

NO_AUTHORIZER = "the node has no authorizer (authorizer.class.name): it refuses no request"
Tidelog = Callable[[str], tuple[int, str, str]]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryCluster]:
    with cluster_in_a_thread() as made:
        monkeypatch.setenv("TIDELOG_BOOTSTRAP", made.bootstrap)
        scripted(made, create_acls=admin_pb2.CreateAclsResponse(created=1))
        scripted(made, describe_acls=admin_pb2.DescribeAclsResponse())
        scripted(made, delete_acls=admin_pb2.DeleteAclsResponse())
        yield made


@pytest.fixture
def tidelog(capsys: pytest.CaptureFixture[str]) -> Tidelog:
    def run(command: str) -> tuple[int, str, str]:
        code = main(command.split())
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def scripted(cluster: MemoryCluster, **answers: object) -> None:
    for node in cluster.nodes:
        node.scripted.update(answers)


def explains(cluster: MemoryCluster, *, enforced: bool) -> None:
    answer = admin_pb2.ExplainAclResponse(allowed=False, reason="no ACL allows it", enforced=enforced)
    scripted(cluster, explain_acl=answer)


def test_rules_without_an_authorizer_are_stored_with_a_word_about_it(cluster: MemoryCluster, tidelog: Tidelog) -> None:
    explains(cluster, enforced=False)
    add = "acl add --allow User:alice -o read --topic orders"
    assert tidelog(add) == (0, "", f"1 ACL added\n{NO_AUTHORIZER}\n")
    assert tidelog("acl list")[2] == f"{NO_AUTHORIZER}\n"
    assert tidelog(f"{add} --json")[2] == tidelog("acl list --json")[2] == ""
    assert tidelog("acl test User:alice read --topic orders") == (
        1,
        "",
        f"allowed now: {NO_AUTHORIZER}. With one:\ndenied: no ACL allows it\n",
    )


def test_rules_with_an_authorizer_need_no_word(cluster: MemoryCluster, tidelog: Tidelog) -> None:
    explains(cluster, enforced=True)
    assert tidelog("acl add --allow User:alice -o read --topic orders") == (0, "", "1 ACL added\n")
    assert tidelog("acl list")[2] == ""
    assert tidelog("acl test User:alice read --topic orders") == (1, "", "denied: no ACL allows it\n")


@pytest.mark.usefixtures("no_lag")
def test_rules_that_were_added_are_reported_although_the_next_answer_fails(
    cluster: MemoryCluster, tidelog: Tidelog
) -> None:
    scripted(cluster, explain_acl=NodeNotAvailable("starting"))
    assert tidelog("acl add --allow User:alice -o read --topic orders") == (0, "", "1 ACL added\n")
