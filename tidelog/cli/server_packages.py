"""Loads the server packages for what needs them: `storage`, `replication`, `node` and `testbed`.

They are not part of the client: a wheel has them under `tidelog/_server`, a checkout beside `tidelog`. Only this module
adds their directory to `sys.path`.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import tidelog
from tidelog.errors import UnsupportedVersion


def server_module(name: str, extra: str = "server") -> Any:
    """Import a module of the server packages by its full name (`node.process.local_cluster`). extra: what to install
    for its dependencies.

    Raises UnsupportedVersion if the packages or their dependencies are not installed.
    """
    inside = Path(tidelog.__file__).resolve().parent
    for home in (inside / "_server", inside.parent):
        if (home / f"{name.replace('.', '/')}.py").is_file():
            if str(home) not in sys.path:
                sys.path.insert(0, str(home))
            try:
                return importlib.import_module(name)
            except ModuleNotFoundError as missing:
                raise UnsupportedVersion(
                    f"nodes and their files need {missing.name}: pip install 'tidelog[{extra}]'"
                ) from missing
    raise UnsupportedVersion("this installation has no server packages: install the whole wheel, or use a checkout")
