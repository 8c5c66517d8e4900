"""A node as a process with SASL on every listener: the command line is let in as a user, and no one else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.node_process import SECRET, SaslNode

pytestmark = pytest.mark.integration


@pytest.fixture
def node(tmp_path: Path) -> Iterator[SaslNode]:
    started = SaslNode(tmp_path)
    try:
        yield started
    finally:
        started.process.kill()
        started.process.wait()


def test_the_first_user_is_created_with_the_secret_and_records_go_through(node: SaslNode) -> None:
    """Several commands, each a process that imports the client, and hashes of passwords."""
    for at in (node.inside, node.outside):
        code, said = node.tidelog(at, "topic", "list")
        assert (code, "requires SASL" in said) == (1, True)
    file = str(node.home / "alice")
    code, said = node.tidelog(
        node.inside, "user", "add", "alice", "--password-file", file, user="cluster", password="secret"
    )
    assert code == 0, said
    assert node.tidelog(node.outside, "topic", "create", "orders", user="alice", password="alice")[0] == 0
    written = node.tidelog(node.outside, "produce", "orders", user="alice", password="alice", typed="one\ntwo\n")
    assert written == (0, "2 records acknowledged\n")
    code, said = node.tidelog(node.outside, "consume", "orders", "-n", "2", user="alice", password="alice")
    assert said.splitlines()[:2] == ["one", "two"]
    code, said = node.tidelog(node.outside, "topic", "list", user="alice", password="wrong")
    assert (code, "wrong user name or password" in said) == (1, True)
    log = node.log.read_text()
    assert "authentication failed user=alice" in log
    assert "every user of this machine can read cluster.secret.file" in log
    assert not any(secret in log for secret in (SECRET, "tulip", "orchid"))
