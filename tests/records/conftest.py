"""Hypothesis without a deadline: machines are shared, and how long an example takes is not what is tested here."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("shared machine", deadline=None)
settings.load_profile("shared machine")
