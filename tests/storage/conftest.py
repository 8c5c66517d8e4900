"""Fixtures of the storage tests."""

from __future__ import annotations

import pytest

from storage.segment import abstract_index


@pytest.fixture
def indexes_in_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Indexes hold no entries in memory: the first one creates and maps the file."""
    monkeypatch.setattr(abstract_index, "memory_entries_max", lambda _path: 0)
