"""`python -m bench.background_load SHARE`: uses that share of each core in slices of 2 ms, until its input ends.

Stands for other work of a machine: a record that is sent one at a time meets it at any moment.
"""

from __future__ import annotations

import os
import select
import sys
import time
from typing import Final

SLICE_SECONDS: Final = 0.002


def main(share: float) -> int:
    """One process per core, each bound to its own; this process is the first of them."""
    cores = sorted(os.sched_getaffinity(0))
    mine = cores[0]
    for core in cores[1:]:
        if os.fork() == 0:
            mine = core
            break
    os.sched_setaffinity(0, {mine})
    pause = SLICE_SECONDS / share - SLICE_SECONDS
    while not select.select([sys.stdin], [], [], pause)[0]:
        until = time.perf_counter() + SLICE_SECONDS
        while time.perf_counter() < until:
            pass
    return 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1])))
