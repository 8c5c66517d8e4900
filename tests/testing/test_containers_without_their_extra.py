"""`tidelog.testing.containers` without testcontainers."""

from __future__ import annotations

import importlib
import sys

import pytest


def test_what_is_missing_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "tidelog.testing.containers", raising=False)
    monkeypatch.setitem(sys.modules, "testcontainers.core.container", None)
    with pytest.raises(ImportError, match=r"needs testcontainers.*: pip install 'tidelog\[testcontainers\]'"):
        importlib.import_module("tidelog.testing.containers")
