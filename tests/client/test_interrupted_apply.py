"""Ctrl-C while `tidelog apply` changes a cluster: what was done is said."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.client.memory_cluster import cluster_in_a_thread
from tests.client.terminal import Terminal
from tidelog.client.admin import Admin
from tidelog.protocol.v1 import admin_pb2

QUOTAS = "".join(f'[[quotas]]\nuser = "{user}"\nproducer_byte_rate = 1_000\n' for user in ("a", "b", "c"))


@pytest.fixture
def file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """Quotas for a cluster without quotas, in which Ctrl-C is typed while the second of them is set."""
    changed: list[object] = []

    async def change(_admin: Admin, changes: Any, **_options: Any) -> None:
        changed.extend(changes)
        if len(changed) == 2:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.get_running_loop().create_future()

    path = tmp_path / "quotas.toml"
    path.write_text(QUOTAS)
    with cluster_in_a_thread() as cluster:
        for node in cluster.nodes:
            node.scripted["describe_client_quotas"] = admin_pb2.DescribeClientQuotasResponse()
        monkeypatch.setenv("TIDELOG_BOOTSTRAP", cluster.bootstrap)
        monkeypatch.setattr(Admin, "alter_client_quotas", change)
        yield str(path)


def test_the_outcomes_so_far_are_printed(file: str, tidelog: Terminal) -> None:
    assert tidelog("apply", "--file", file) == 130
    assert tidelog.out.count(b"created") == 1
    assert "1 created" in tidelog.err
    assert "interrupted: 2 objects of 3 have no outcome" in tidelog.err
    assert "the same command continues" in tidelog.err


def test_a_script_gets_them_as_a_document(file: str, tidelog: Terminal) -> None:
    assert tidelog("apply", "--file", file, "--json") == 130
    (done,) = tidelog.json["objects"]
    assert (done["action"], done["done"], tidelog.json["interrupted"]) == ("create", True, True)


def test_a_diff_that_is_interrupted_says_nothing(file: str, tidelog: Terminal) -> None:
    """Half a diff would look like a whole one."""
    assert tidelog("apply", "--file", file, "--diff") == 130
    assert (tidelog.out, "interrupted" in tidelog.err) == (b"", False)
