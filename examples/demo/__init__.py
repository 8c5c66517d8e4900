"""The main job, end to end: `make demo`. Start at __main__.py."""

import os

# gRPC's own log says what the demo shows anyway: that a connection broke when a node was killed.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

# Spark's virtual machine is started by a fork. gRPC would set its threads going in the child too, before that becomes
# Java: they poll what the child has closed, and once in a while it ends with that.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
