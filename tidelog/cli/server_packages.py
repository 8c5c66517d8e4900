"""Loads the server packages for what needs them: `storage`, `replication`, `node` and `testbed`.

They are not part of the client: a wheel has them under `tidelog/_server`, a checkout beside `tidelog`. Only this module
adds their directory to `sys.path`.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any, Final

import tidelog
from tidelog.errors import UnsupportedVersion

_PACKAGES: Final = ("storage", "replication", "node", "testbed")


def server_module(name: str, extra: str = "server") -> Any:
    """Import a module of the server packages by its full name (`node.process.local_cluster`). extra: what to install
    for its dependencies.

    Raises UnsupportedVersion if the packages or their dependencies are not installed, or if this process has imported
    another package with the name of one of them.
    """
    inside = Path(tidelog.__file__).resolve().parent
    for home in (inside / "_server", inside.parent):
        if (home / f"{name.replace('.', '/')}.py").is_file():
            _refuse_others(home)
            if str(home) not in sys.path:
                sys.path.insert(0, str(home))
            try:
                return importlib.import_module(name)
            except ModuleNotFoundError as missing:
                raise UnsupportedVersion(
                    f"nodes and their files need {missing.name}: pip install 'tidelog[{extra}]'"
                ) from missing
    raise UnsupportedVersion("this installation has no server packages: install the whole wheel, or use a checkout")


def _refuse_others(home: Path) -> None:
    """Python has one module of a name: with another one of the application, that of the server cannot be found."""
    for name in _PACKAGES:
        places = [Path(place).resolve() for place in getattr(sys.modules.get(name), "__path__", ())]
        file = getattr(sys.modules.get(name), "__file__", None)
        if name in sys.modules and home / name not in places:
            raise UnsupportedVersion(
                f"this process has imported another module {name!r} ({file or places or 'built in'}), and Tidelog's "
                f"nodes need theirs: give yours another name, or put it into a package"
            )
