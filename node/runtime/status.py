"""Errors on the node's side of the wire: the names a service uses, and what a failed handler means to its caller.

The conversion itself is shared with the client: `tidelog/protocol/status.py`.
"""

from __future__ import annotations

import logging

from tidelog.errors import TidelogError, UnknownServerError
from tidelog.protocol.status import address_from_proto, address_to_proto, from_proto, to_proto

__all__ = ["address_from_proto", "address_to_proto", "as_tidelog_error", "from_proto", "to_proto"]

_log = logging.getLogger("node.status")


def as_tidelog_error(error: Exception, *, doing: object) -> TidelogError:
    """What to tell a caller of whatever a handler raised. An error that is not a TidelogError is a defect of ours: it
    is logged with its traceback and becomes UnknownServerError."""
    if isinstance(error, TidelogError):
        return error
    _log.error("a defect: %s failed", doing, exc_info=error)
    return UnknownServerError(
        f"{doing} failed on the node by a defect ({type(error).__name__}); the node's log says more"
    )
