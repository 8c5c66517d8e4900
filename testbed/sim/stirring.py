"""Announces writes to the state that the checkers watch: a write marks the running process as stirred, so that a
callback without such a write needs no check of its node's replicas.

Invariants: everything that `views.moved` compares, and the newest committed image, is in an attribute named here, or in
a dictionary that is filled in the same callback as such an attribute; `test_stirring.py` verifies it. A write from
outside any process (by a story itself) stirs all processes. Not here: what changed and whether it may (views.py,
checkers.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from node.metadata.metadata_log import MetadataLog
from node.process.metadata_node import MetadataNode
from node.process.node import Node
from node.quorum.state import QuorumView
from node.replicas.replica import Replica
from storage.directory.log_directory import LogDirectory
from storage.log.flush import FlushState
from storage.log.log import Log
from testbed.sim.process import CURRENT, Process

WATCHED: Final[Mapping[type, frozenset[str]]] = {
    Log: frozenset({"directory", "log_start_offset", "_left_below", "log_end_offset", "high_watermark", "flush_state"}),
    FlushState: frozenset({"synced"}),
    LogDirectory: frozenset({"offline"}),
    Replica: frozenset({"log", "state", "leader_epoch", "offline"}),
    QuorumView: frozenset({"leader_epoch", "leader_id"}),
    MetadataLog: frozenset({"image", "log"}),
    MetadataNode: frozenset({"metadata", "view"}),
    Node: frozenset({"_metadata", "replicas"}),
}


def announce_writes() -> None:
    """Let the watched classes announce writes from now on, until the interpreter ends."""
    for cls, names in WATCHED.items():
        if "__setattr__" not in vars(cls):
            cls.__setattr__ = _telling(cls, names)  # type: ignore[method-assign]


def _telling(cls: type, names: frozenset[str]) -> Any:
    plain: Callable[..., None] = cls.__setattr__

    def write(self: object, name: str, value: object) -> None:
        plain(self, name, value)
        if name in names:
            process = CURRENT.get()
            if process is not None:
                process.stirred = True
            else:
                Process.stir_all()

    return write
