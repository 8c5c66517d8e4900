"""A terminal for the tests of the command line."""

from __future__ import annotations

import pytest

from replication.controller import move_queue
from tests.client.terminal import Terminal


@pytest.fixture
def tidelog(monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> Terminal:
    return Terminal(monkeypatch, capsysbinary)


@pytest.fixture
def one_move_per_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """`cluster.moves.per.node` of every controller is 1, so that moves take a while."""
    next_wave = move_queue.next_wave
    monkeypatch.setattr(move_queue, "next_wave", lambda image, _moves_per_node: next_wave(image, 1))
