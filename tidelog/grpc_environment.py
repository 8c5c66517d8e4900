"""gRPC's environment variables. gRPC reads them when it is imported; a value set by the user is kept.

`GRPC_ENABLE_FORK_SUPPORT=0`: gRPC's fork handlers restart gRPC's threads in a forked child. There they may poll
descriptors that the child has closed, and abort the child. PySpark starts its JVM by a fork with a `preexec_fn`:
without this setting one start in about twenty fails beside an active client.

`GRPC_EXPERIMENTS`: since grpcio 1.80 sockets are polled by the threads of gRPC's EventEngine, which pass each event to
the thread that waits for completions, which wakes the event loop. Without the EventEngine, as in all versions before,
the second of these threads polls the sockets itself: a message wakes two threads instead of three or four, and a round
trip takes half of the time and of the processor (docs/performance.md, "One record at a time").
"""

from __future__ import annotations

from collections.abc import MutableMapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

WITHOUT_EVENT_ENGINE: Final = "-event_engine_client,-event_engine_listener"

_EVENT_ENGINE_IS_OPTIONAL: Final = ("1.85.",)
"""Versions of grpcio that know these two experiments. Others may report unknown experiments on standard error."""


def set_defaults(environment: MutableMapping[str, str]) -> None:
    """Set the variables that are not set."""
    environment.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    if "GRPC_EXPERIMENTS" not in environment and _installed_version().startswith(_EVENT_ENGINE_IS_OPTIONAL):
        environment["GRPC_EXPERIMENTS"] = WITHOUT_EVENT_ENGINE


def _installed_version() -> str:
    """The version of grpcio, without the cost of its import or of importlib.metadata; empty if it is not found."""
    spec = find_spec("grpc")
    if spec is None or spec.origin is None:
        return ""
    try:
        text = Path(spec.origin).with_name("_grpcio_metadata.py").read_text(encoding="utf-8")
    except OSError:
        return ""
    return text.partition("=")[2].strip().strip('"')
