"""A command line that cannot mean anything: exit code 2, as for an option that does not exist."""

from __future__ import annotations


class WrongUsage(Exception):
    """An option or argument is missing, contradicts another one, or cannot be parsed. No node was asked."""
