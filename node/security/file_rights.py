"""Who may read the secrets of a node: its keys and the secret of the cluster.

A group may: Kubernetes gives mounted secrets to the group of the process (fsGroup).
"""

from __future__ import annotations

import stat
from collections.abc import Iterable
from pathlib import Path


def read_by_all(files: Iterable[str]) -> list[str]:
    """Those that every user of this machine may read, each once."""
    return [file for file in dict.fromkeys(files) if file and _is_open(file)]


def _is_open(file: str) -> bool:
    try:
        return bool(Path(file).stat().st_mode & stat.S_IROTH)
    except (OSError, ValueError):
        return False  # whoever reads it says why
