"""The main job, end to end: `make demo`. Start at __main__.py."""

import os

# gRPC's own log says what the demo shows anyway: that a connection broke when a node was killed.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
