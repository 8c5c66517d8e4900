"""`tidelog user`: passwords come from files, standard input or a prompt, become keys, and are shown nowhere."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.memory_cluster import MemoryCluster, cluster_in_a_thread
from tidelog import sync
from tidelog.cli import main
from tidelog.client.users import UserDescription
from tidelog.errors import ResourceNotFound, UnacceptableCredential, UnsupportedSaslMechanism
from tidelog.protocol.message_mapping import write_message
from tidelog.protocol.v1 import acl_pb2, admin_pb2, common_pb2
from tidelog.security.acls import AclBinding, AclOperation, AclPermission, PatternType, ResourceType
from tidelog.security.scram import credential_of
from tidelog.types import QuotaType, ScramMechanism

PASSWORD = "correct horse"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryCluster]:
    with cluster_in_a_thread() as made:
        monkeypatch.setenv("TIDELOG_BOOTSTRAP", made.bootstrap)
        yield made


def has_password(cluster: MemoryCluster, name: str, mechanism: ScramMechanism) -> bool:
    kept = cluster.users[name, mechanism.value]
    expected = credential_of(mechanism, PASSWORD, kept.salt, kept.iterations)
    return (expected.stored_key, expected.server_key) == (kept.stored_key, kept.server_key)


def test_a_user_from_creation_to_removal(
    cluster: MemoryCluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "password"
    file.write_text(f"{PASSWORD}\nnot this line\n")
    assert main(["user", "add", "alice", "--password-file", str(file)]) == 0
    assert all(has_password(cluster, "alice", mechanism) for mechanism in ScramMechanism)
    assert len({each.salt for each in cluster.users.values()}) == 2
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{PASSWORD}\n"))
    assert (
        main(["user", "add", "bob", "--password-file", "-", "--mechanism", "SCRAM-SHA-512", "--iterations", "4096"])
        == 0
    )
    assert has_password(cluster, "bob", ScramMechanism.SCRAM_SHA_512)
    assert main(["user", "list"]) == 0
    shown = capsys.readouterr()
    assert "alice" in shown.out
    assert PASSWORD not in shown.out + shown.err
    assert main(["user", "list", "--json"]) == 0
    assert '{"name": "bob", "mechanism": "SCRAM-SHA-512", "iterations": 4096}' in capsys.readouterr().out
    assert main(["user", "remove", "alice"]) == 0
    assert [name for name, _ in cluster.users] == ["bob"]
    assert main(["user", "remove", "alice"]) == 1
    assert "there is no user 'alice'" in capsys.readouterr().err


LEFT = """\
user 'billing 2' removed
2 ACLs of User:billing 2 left: tidelog acl remove --principal 'User:billing 2'
1 quota of user 'billing 2' left: tidelog quota remove --user 'billing 2'
1 quota of user 'billing 2', client id 'app' left: tidelog quota remove --user 'billing 2' --client-id app
1 quota of user 'billing 2', default client id left: tidelog quota remove --user 'billing 2' --default-client-id
"""


def test_a_removed_user_leaves_rules_and_quotas_and_the_commands_that_remove_them(
    cluster: MemoryCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "password"
    file.write_text(PASSWORD)
    rule = write_message(
        acl_pb2.AclBinding,
        AclBinding(
            ResourceType.TOPIC,
            "orders",
            PatternType.LITERAL,
            "User:billing 2",
            "*",
            AclOperation.READ,
            AclPermission.ALLOW,
        ),
    )
    quotas = [
        admin_pb2.ClientQuota(
            entity=common_pb2.QuotaEntity(user="billing 2", client_id=client),
            values=[common_pb2.QuotaValue(key=QuotaType.PRODUCER_BYTE_RATE.value, value=1)],
        )
        for client in (None, "app", "")
    ]
    for node in cluster.nodes:
        node.scripted["describe_acls"] = admin_pb2.DescribeAclsResponse(bindings=[rule, rule])
        node.scripted["describe_client_quotas"] = admin_pb2.DescribeClientQuotasResponse(entries=quotas)
    for as_json in ([], ["--json"]):
        assert main(["user", "add", "billing 2", "--password-file", str(file)]) == 0
        capsys.readouterr()
        assert main(["user", "remove", "billing 2", *as_json]) == 0
        said = capsys.readouterr()
        assert said.err == ("" if as_json else LEFT)


def test_a_password_is_asked_for_at_a_terminal_only(
    cluster: MemoryCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(PASSWORD))
    assert main(["user", "add", "alice"]) == 1
    assert "--password-file" in capsys.readouterr().err
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("click.prompt", lambda *_args, **_options: PASSWORD)
    assert main(["user", "add", "alice", "--mechanism", "SCRAM-SHA-256"]) == 0
    assert has_password(cluster, "alice", ScramMechanism.SCRAM_SHA_256)


def test_what_no_user_can_have_is_refused_without_showing_it(
    cluster: MemoryCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "password"
    file.write_text("bell\x07bell\n")
    assert main(["user", "add", "alice", "--password-file", str(file)]) == 1
    assert "bell" not in capsys.readouterr().err
    for contents, says in ((b"", "is empty"), (b"\n", "is empty"), (b"\xff\xfe", "it is not text in UTF-8")):
        file.write_bytes(contents)
        assert main(["user", "add", "alice", "--password-file", str(file)]) == 1
        assert says in capsys.readouterr().err
    assert not cluster.users


def test_the_synchronous_admin_has_the_same_methods(cluster: MemoryCluster) -> None:
    with sync.Admin(cluster.bootstrap) as admin:
        admin.set_password("alice", PASSWORD, mechanisms=["SCRAM-SHA-256"], iterations=5_000)
        assert admin.list_users() == [UserDescription("alice", "SCRAM-SHA-256", 5_000)]
        with pytest.raises(UnacceptableCredential):
            admin.set_password("alice", PASSWORD, iterations=1)
        with pytest.raises(UnsupportedSaslMechanism, match="PLAIN"):
            admin.set_password("alice", PASSWORD, mechanisms=["PLAIN"])
        with pytest.raises(TypeError) as refused:
            admin.set_password("alice", b"secret-bytes")  # type: ignore[arg-type]
        assert "secret-bytes" not in str(refused.value)
        admin.remove_user("alice")
        with pytest.raises(ResourceNotFound):
            admin.remove_user("alice")
