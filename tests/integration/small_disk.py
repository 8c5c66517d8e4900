"""Log directories on small file systems of their own, which real nodes fill."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from node.process.local_cluster import LocalNode

MOUNT = 'mount -t tmpfs -o size=24m tmpfs "$0" && head -c 4194304 /dev/zero > "$0/ballast" && exec "$@"'
NAME = "directory"
"""Of the log directory in the file system: the ballast may not lie in it."""
SETTINGS = {"log.index.size.max.bytes": 16384}
"""Indexes of the usual size would fill these file systems."""


@cache
def namespaces_work() -> bool:
    command = ["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return (
        shutil.which("unshare") is not None
        and subprocess.run(command, capture_output=True, check=False).returncode == 0
    )


needs_small_disks = pytest.mark.skipif(
    not namespaces_work(), reason="this machine does not allow users to mount a small file system"
)


def give_small_disk(node: LocalNode) -> None:
    """Before the node starts: its log directory is on a file system of 24 MiB with a ballast of 4 MiB."""
    node.data.mkdir()
    node.wrapper = ("unshare", "-rm", "sh", "-c", MOUNT, str(node.data))
    node.config.write_text(node.config.read_text().replace(str(node.data), str(node.data / NAME)))


def make_room(node: LocalNode) -> None:
    """Remove the ballast, which only the running node sees."""
    (Path(f"/proc/{node.pid}/root") / str(node.data / "ballast").lstrip("/")).unlink()
