"""Tidelog inside tests: a cluster of processes with faults, a node in the process of the test, and the simulator.

`pip install 'tidelog[testing]'` brings what they need. Each name is loaded on first use; pytest finds the fixtures by
itself (tidelog/testing/plugin.py). See docs/testing.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tidelog.testing.in_process import InProcessNode
    from tidelog.testing.process_cluster import LocalCluster
    from tidelog.testing.simulation import Application, Simulation
    from tidelog.testing.unique_names import unique_name

_HOME: Final = {
    "Application": "tidelog.testing.simulation",
    "InProcessNode": "tidelog.testing.in_process",
    "LocalCluster": "tidelog.testing.process_cluster",
    "Simulation": "tidelog.testing.simulation",
    "unique_name": "tidelog.testing.unique_names",
}

__all__ = ["Application", "InProcessNode", "LocalCluster", "Simulation", "unique_name"]


def __getattr__(name: str) -> object:
    """Load a public name from its module on first use."""
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'tidelog.testing' has no attribute {name!r}")
    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
