"""Runs commands of the command line in this process."""

from __future__ import annotations

import io
import json
import sys
from typing import Any

import pytest

from tidelog.cli import main


class Terminal:
    """Runs commands and keeps their output."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, captured: pytest.CaptureFixture[bytes]) -> None:
        self._monkeypatch, self._captured = monkeypatch, captured
        self.out, self.err = b"", ""

    def __call__(self, *arguments: str, typed: bytes = b"") -> int:
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(typed)))
        code = main(list(arguments))
        said = self._captured.readouterr()
        self.out, self.err = said.out, said.err.decode()
        return code

    @property
    def json(self) -> Any:
        return json.loads(self.out)
