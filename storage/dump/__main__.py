"""`python -m storage.dump PATH...`: see command.py."""

import sys

from storage.dump.command import run

if __name__ == "__main__":
    sys.exit(run())
