"""Faults of real stores that only a process of its own can have: a wrong clock, and a file system that is full."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.small_disk import needs_small_disks
from tests.tiering.s3_gateway import BUCKET, ROOT, running_gateway

pytestmark = pytest.mark.integration

AN_HOUR_AHEAD = """
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
    if (!failed && clock == CLOCK_REALTIME) now->tv_sec += 3600;
    return failed;
}
"""

CALLS = """
import sys
from tidelog.errors import TidelogError
from tidelog.tiering.obstore_store import open_object_store

store = open_object_store(sys.argv[1])
for call in (
    lambda: [store.put(f"key-{number}", [bytes(1 << 20)]) for number in range(int(sys.argv[2]))],
    lambda: store.get_range("key-0", 0, 1),
    lambda: len(list(store.list(""))) and None,
):
    try:
        call()
        print("done")
    except TidelogError as error:
        print(type(error).__name__, error.message)
"""


def told(url: str, objects: int, *prefix: str, **environment: str) -> list[str]:
    """What a process is told that writes so many objects of a MiB, reads one and lists all."""
    ended = subprocess.run(
        [*prefix, sys.executable, "-c", CALLS, url, str(objects)],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


def test_a_clock_that_is_an_hour_ahead_is_named(tmp_path: Path) -> None:
    """S3 signs requests with the time, and refuses those of another quarter of an hour."""
    source, library = tmp_path / "ahead.c", tmp_path / "ahead.so"
    source.write_text(AN_HOUR_AHEAD)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    with running_gateway(tmp_path / "s3") as gateway:
        url = f"s3://{BUCKET}/tide"
        for line in told(url, 1, **gateway.environment(), LD_PRELOAD=str(library)):
            assert line.startswith("ObjectStoreRefused") and "set this node's by NTP" in line
        assert told(url, 1, **gateway.environment()) == ["done"] * 3


@needs_small_disks
def test_a_full_file_system_takes_no_more_objects_and_gives_those_it_has(tmp_path: Path) -> None:
    mounted = ("unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o size=4m tmpfs "$0" && exec "$@"', str(tmp_path))
    written, read, listed = told(f"file://{tmp_path}/store", 9, *mounted)
    assert written.startswith("ObjectStoreFull") and "give the store more space, or shorten retention" in written
    assert (read, listed) == ("done", "done")
