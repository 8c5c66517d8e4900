"""What a node tells about its own process, against what Python and the system say by other ways."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

from node.runtime.process_usage import ProcessUsage, process_usage
from tidelog.clock import MachineClock

MIB = 1 << 20


def test_the_usage_of_a_process_is_what_others_see() -> None:
    began_s = used().cpu_s
    while used().cpu_s < began_s + 0.1:  # it counts what is done meanwhile
        pass
    with Path("/dev/null").open() as _one_more:
        usage, fewer = used(), sum(1 for _ in Path("/proc/self/fd").iterdir()) - 1
    assert abs(usage.cpu_s - time.process_time()) < 0.1
    assert abs(usage.resident_bytes - memory("VmRSS")) < 8 * MIB
    assert abs(usage.virtual_bytes - memory("VmSize")) < 8 * MIB
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks_after_boot() / os.sysconf("SC_CLK_TCK")
    assert abs(usage.started_s + age_s - MachineClock().wall_ms() / 1_000) < 2
    assert fewer <= usage.open_files <= fewer + 1
    assert usage.files_max == resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def test_a_system_without_proc_has_no_usage(tmp_path: Path) -> None:
    """An error would take all other metrics with it."""
    assert process_usage(tmp_path) is None


def used() -> ProcessUsage:
    usage = process_usage()
    assert usage is not None
    return usage


def memory(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


def ticks_after_boot() -> int:
    return int(Path(f"/proc/{os.getpid()}/stat").read_text().rpartition(") ")[2].split()[19])
