"""Nodes that a test starts as processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from node.process.free_ports import free_ports


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


SECRET = "0123456789abcdef" * 2


class SaslNode:
    """A node whose listeners GRPC and OUTSIDE require SASL. more: further settings."""

    def __init__(self, home: Path, more: Mapping[str, object] | None = None) -> None:
        self.home = home
        self.inside, self.outside = (f"127.0.0.1:{port}" for port in free_ports(2))
        for name, text in (("secret", SECRET), ("alice", "tulip"), ("wrong", "orchid")):
            (home / name).write_text(f"{text}\n")
            (home / name).chmod(0o644)
        settings = {
            "node.id": 0,
            "listeners": [f"GRPC://{self.inside}", f"OUTSIDE://{self.outside}"],
            "controller.quorum.bootstrap.servers": [self.inside],
            "cluster.bootstrap.enable": "true",
            "log.dirs": [str(home / "data")],
            "listener.security.protocol.map": ["GRPC:GRPC_SASL_PLAINTEXT", "OUTSIDE:GRPC_SASL_PLAINTEXT"],
            "cluster.secret.file": f'"{home / "secret"}"',
            "super.users": ["User:cluster", "User:alice"],
            **(more or {}),
        }
        lines = [f'"{key}" = {str(value) if not isinstance(value, list) else value}' for key, value in settings.items()]
        (home / "node.toml").write_text("\n".join(lines))
        self.log = home / "log"
        self.environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "node", "--config", str(home / "node.toml")],
                env=self.environment,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert self.process.stdout is not None
        assert self.process.stdout.readline().startswith(b"ready node=0 "), self.log.read_text()

    def tidelog(self, at: str, *arguments: str, user: str = "", password: str = "", typed: str = "") -> tuple[int, str]:
        """The exit code and the output of a command."""
        options = ["--sasl-username", user, "--sasl-password-file", str(self.home / password)] if user else []
        ended = subprocess.run(
            [sys.executable, "-m", "tidelog.cli", *options, *arguments],
            env={**self.environment, "TIDELOG_BOOTSTRAP": at},
            input=typed,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return ended.returncode, ended.stdout + ended.stderr
