"""`python -m node --config FILE`: run one node (see `node/process.py`)."""

import sys

from node.process import main

if __name__ == "__main__":
    sys.exit(main())
