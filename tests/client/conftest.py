"""A terminal for the tests of the command line."""

from __future__ import annotations

import pytest

from replication.controller import move_queue
from tests.client.terminal import Terminal
from tidelog.cli import cluster_command
from tidelog.client import cluster, fetch_core, offset_lookup


@pytest.fixture
def tidelog(monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> Terminal:
    return Terminal(monkeypatch, capsysbinary)


@pytest.fixture
def one_move_per_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """`cluster.moves.per.node` of every controller is 1, so that moves take a while."""
    next_wave = move_queue.next_wave
    monkeypatch.setattr(move_queue, "next_wave", lambda image, _moves_per_node: next_wave(image, 1))


@pytest.fixture
def no_lag(monkeypatch: pytest.MonkeyPatch) -> None:
    """No node is behind, starts or repairs its log: a client that is told that there is no such topic, or that gets
    corrupt bytes, asks for a moment and not for seconds. (test_new_topics.py and others test the seconds.)"""
    for module, name in (
        (cluster, "NEW_TOPIC_MS"),
        (offset_lookup, "NEW_TOPIC_MS"),
        (fetch_core, "MISSING_PARTITION_MS"),
        (fetch_core, "REFUSED_MS"),
        (cluster_command, "PATIENCE_MS"),
    ):
        monkeypatch.setattr(module, name, 150)
