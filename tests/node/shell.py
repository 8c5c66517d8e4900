"""Runs commands of the command line on real nodes in this process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection
from typing import Any

import pytest

from tests.node.real_nodes import RealNodes
from tidelog.cli import main
from tidelog.types import Endpoint


class Shell:
    """Runs commands beside the loop of the nodes."""

    def __init__(
        self, nodes: RealNodes, captured: pytest.CaptureFixture[str], addresses: Collection[Endpoint] = ()
    ) -> None:
        """addresses: of a further listener; by default, those of the nodes."""
        self._bootstrap = ",".join(map(str, addresses or nodes.addresses))
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
