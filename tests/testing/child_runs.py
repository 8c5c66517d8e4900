"""Runs of pytest by the tests of its plugin."""

from __future__ import annotations

import os
from typing import Final

WITHOUT_ENTRY_POINTS: Final = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
"""They name the plugin with -p. In a checkout that has built a wheel pytest also finds it by its entry point, and
refuses it the second time."""
