"""A terminal for the tests of the command line."""

from __future__ import annotations

import pytest

from tests.client.terminal import Terminal


@pytest.fixture
def tidelog(monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> Terminal:
    return Terminal(monkeypatch, capsysbinary)
