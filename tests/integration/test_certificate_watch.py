"""A real node whose certificate has expired, and is replaced while nobody connects."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.certificates import Authority, settings_of

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]

NODE = "import sys, node.process.process as it; it.CERTIFICATES_MS = 100; sys.exit(it.main(sys.argv[1:]))"
"""A node that looks at its certificates ten times a second instead of once an hour."""


def test_an_idle_node_says_that_its_certificate_expired_and_sees_the_next_one(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    settings = {
        **settings_of(authority.node(age_days=5)),
        "node.id": 0,
        "controller.quorum.bootstrap.servers": ["127.0.0.1:1"],
        "listeners": ["GRPC://127.0.0.1:0"],
        "listener.security.protocol.map": ["GRPC:GRPC_SSL"],
        "log.dirs": [str(tmp_path / "data")],
        "super.users": ["User:CN=alice"],
    }
    lines = [f'"{key}" = {value if isinstance(value, list) else repr(value)}' for key, value in settings.items()]
    (tmp_path / "node.toml").write_text("\n".join(lines))
    process = subprocess.Popen(
        [sys.executable, "-c", NODE, "--config", str(tmp_path / "node.toml")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        assert any("error" in line and "expired on" in line for line in process.stderr)
        authority.node()
        assert any("uses the certificate that was replaced on disk" in line for line in process.stderr)
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
