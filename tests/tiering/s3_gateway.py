"""A real S3 server on loopback: versitygw, with a folder as its disk."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tidelog.clock import MachineClock

ROOT = Path(__file__).resolve().parent.parent.parent
ACCESS_KEY, SECRET_KEY = "tidelog-test", "tidelog-test-secret"
BUCKET = "history"
_START_MS = 30_000


def gateway_path() -> str:
    """The program that `make s3-gateway` builds. Skips the test if there is none."""
    built = ROOT / "build/s3-gateway/versitygw"
    found = str(built) if built.exists() else shutil.which("versitygw")
    if found is None:
        pytest.skip("needs versitygw: make s3-gateway")
    return found


@contextmanager
def s3_gateway(folder: Path) -> Iterator[str]:
    """Start the server; yields its URL. The bucket `history` exists."""
    clock = MachineClock()
    (folder / "root" / BUCKET).mkdir(parents=True)
    (folder / "sidecar").mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    keys = {"ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY}
    command = [gateway_path(), "--port", f"127.0.0.1:{port}", "--quiet", "posix"]
    command += ["--sidecar", str(folder / "sidecar"), str(folder / "root")]
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **keys}) as server,
    ):
        try:
            deadline = clock.monotonic_ms() + _START_MS
            while not _answers(port):
                assert server.poll() is None and clock.monotonic_ms() < deadline, (folder / "log").read_text()
            yield f"http://127.0.0.1:{port}"
        finally:
            server.kill()


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.2)
        return probe.connect_ex(("127.0.0.1", port)) == 0
