"""Importing tidelog sets gRPC's environment variables, before gRPC is imported."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tidelog import grpc_environment
from tidelog.grpc_environment import WITHOUT_EVENT_ENGINE, set_defaults

CONNECTS_AND_PRINTS = """
import asyncio, os
import tidelog, grpc


async def main():
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        await channel.channel_ready()
    await server.stop(0)


asyncio.run(main())
print(os.environ.get("GRPC_EXPERIMENTS"))
"""


def test_the_installed_grpc_knows_what_is_set_and_connects() -> None:
    """A version that does not know an experiment reports it on standard error."""
    environment = {name: value for name, value in os.environ.items() if name != "GRPC_EXPERIMENTS"}
    command = [sys.executable, "-c", CONNECTS_AND_PRINTS]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env=environment)
    assert run.stderr == ""
    expected = WITHOUT_EVENT_ENGINE if grpc_environment._installed_version().startswith("1.85.") else "None"
    assert run.stdout.strip() == expected


@pytest.mark.parametrize("value", ["", "tcp_frame_size_tuning"])
def test_a_value_set_by_the_user_is_kept(value: str) -> None:
    environment = {"GRPC_EXPERIMENTS": value, "GRPC_ENABLE_FORK_SUPPORT": "1"}
    set_defaults(environment)
    assert environment == {"GRPC_EXPERIMENTS": value, "GRPC_ENABLE_FORK_SUPPORT": "1"}


@pytest.mark.parametrize(
    ("version", "is_set"), [("1.85.0", True), ("1.85.1", True), ("1.86.0", False), ("2.0.0", False), ("", False)]
)
def test_only_versions_that_know_the_experiments_get_them(
    version: str, is_set: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_environment, "_installed_version", lambda: version)
    environment: dict[str, str] = {}
    set_defaults(environment)
    assert ("GRPC_EXPERIMENTS" in environment) is is_set


@pytest.mark.parametrize(
    "module", ["tidelog.sync", "node.process.process", "node.process.local_cluster", "bench.cluster_load"]
)
def test_the_variables_are_set_before_grpc_is_imported(module: str) -> None:
    """gRPC reads them when it is imported."""
    program = f"""
import sys
class Watch:
    def find_spec(self, name, path, target=None):
        if name == "grpc":
            import os
            print("GRPC_ENABLE_FORK_SUPPORT" in os.environ)
sys.meta_path.insert(0, Watch())
import {module}, grpc
"""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GRPC_")}
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env=environment)
    assert set(run.stdout.split()) == {"True"}
