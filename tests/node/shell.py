"""Runs commands of the command line on real nodes in this process."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.node.real_nodes import RealNodes
from tidelog.cli import main


class Shell:
    """Runs commands beside the loop of the nodes."""

    def __init__(self, nodes: RealNodes, captured: pytest.CaptureFixture[str]) -> None:
        self._bootstrap = ",".join(map(str, nodes.addresses))
        self._captured = captured
        self.err = ""

    async def __call__(self, *arguments: str, code: int = 0) -> str:
        command = [*arguments, "-b", self._bootstrap]
        self._captured.readouterr()
        found = await asyncio.get_running_loop().run_in_executor(None, main, command)
        said = self._captured.readouterr()
        self.err = said.err
        assert found == code, said.err
        return said.out

    async def json(self, *arguments: str, code: int = 0) -> list[Any]:
        """The documents that a command prints, one a line."""
        return [json.loads(line) for line in (await self("--json", *arguments, code=code)).splitlines()]
