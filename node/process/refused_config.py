"""The form of the one line that says why a configuration cannot be used: JSON where the configuration asks for it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

VARIABLE: Final = "TIDELOG_LOGGING_FORMAT"

_JSON: Final = re.compile(r"""^\s*(["']?)logging\.format\1\s*=\s*["']json["']""", re.MULTILINE)


def wants_json(text: str, environ: Mapping[str, str]) -> bool:
    """Whether log lines are to be JSON, as far as that can be read from a configuration that is refused. text: of the
    file, empty if it cannot be read. environ: the environment variables."""
    return environ[VARIABLE] == "json" if VARIABLE in environ else _JSON.search(text) is not None
