"""A node on a disk and with a clock that have faults: `python -m testbed.faulty_node DISK CLOCK --config FILE`, where
DISK and CLOCK are the files that name these faults (disk_faults.py, faulty_clock.py)."""

from __future__ import annotations

import sys

from node.process.process import main
from testbed.disk_faults import FaultyFiles
from testbed.faulty_clock import FaultyClock

if __name__ == "__main__":
    _, disk, clock, *arguments = sys.argv
    sys.exit(main(arguments, FaultyFiles(disk), FaultyClock(clock)))
