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


class S3Gateway:
    """A server that can be killed and started again on its folder and at its address. The bucket `history` exists."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bucket = folder / "root" / BUCKET
        """Its objects, as files."""
        self.bucket.mkdir(parents=True)
        (folder / "sidecar").mkdir()
        self._program = gateway_path()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def environment(self, *, secret: str = SECRET_KEY) -> dict[str, str]:
        """Where the clients of S3 look for it and for their credentials."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": secret,
        }

    def start(self) -> None:
        """Start it, and wait until it answers."""
        assert self._server is None, "it runs already"
        clock, output = MachineClock(), self.folder / "log"
        keys = {"ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY}
        command = [self._program, "--port", f"127.0.0.1:{self._port}", "--quiet", "posix"]
        command += ["--sidecar", str(self.folder / "sidecar"), str(self.folder / "root")]
        with output.open("ab") as log:
            self._server = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **keys})
        deadline = clock.monotonic_ms() + _START_MS
        while not self._answers():
            assert self._server.poll() is None and clock.monotonic_ms() < deadline, output.read_text()

    def kill(self) -> None:
        """Kill it (SIGKILL), if it runs."""
        server, self._server = self._server, None
        if server is not None:
            server.kill()
            server.wait()

    def _answers(self) -> bool:
        with socket.socket() as probe:
            probe.settimeout(0.2)
            return probe.connect_ex(("127.0.0.1", self._port)) == 0


@contextmanager
def running_gateway(folder: Path) -> Iterator[S3Gateway]:
    """A server that runs."""
    gateway = S3Gateway(folder)
    try:
        gateway.start()
        yield gateway
    finally:
        gateway.kill()


@contextmanager
def s3_gateway(folder: Path) -> Iterator[str]:
    """The URL of a server that runs."""
    with running_gateway(folder) as gateway:
        yield gateway.url
