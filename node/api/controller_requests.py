"""Changes that nodes pass on to the active controller. Their other requests to it are events of the controller."""

from __future__ import annotations

from typing import Any

from node.api.api import Api
from tidelog.values import dataclass


@dataclass(frozen=True, slots=True)
class Envelope:
    """A change that a node passes on to the active controller."""

    api: Api[Any, Any]
    """One with `is_forwarded`."""
    asked: Any
    principal: str = ""
    """The caller who asked the node; empty if the node asks in its own name. The node has authorized it."""


@dataclass(frozen=True, slots=True)
class EnvelopeAnswer:
    """The answer to the change."""

    api: Api[Any, Any]
    answered: Any
