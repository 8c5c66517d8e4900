"""A node on a disk with faults: `python -m testbed.faulty_node FAULTS --config FILE`, where FAULTS is the file that
names them (disk_faults.py)."""

from __future__ import annotations

import sys

from node.process.process import main
from testbed.disk_faults import FaultyFiles

if __name__ == "__main__":
    _, faults, *arguments = sys.argv
    sys.exit(main(arguments, FaultyFiles(faults)))
