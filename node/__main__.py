"""`python -m node --config FILE`: run one node (see `node/process/process.py`)."""

import sys

from node.process.process import main

if __name__ == "__main__":
    sys.exit(main())
