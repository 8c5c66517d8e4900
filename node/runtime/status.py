"""Errors on the node's side of the wire: conversion, and the error that a caller gets for a failed handler.

The conversion itself is shared with the client: `tidelog/protocol/status.py`.
"""

from __future__ import annotations

import logging

from tidelog.errors import TidelogError, UnknownServerError
from tidelog.protocol.status import address_from_proto, address_to_proto, from_proto, to_proto

__all__ = ["address_from_proto", "address_to_proto", "as_tidelog_error", "from_proto", "to_proto"]

_log = logging.getLogger("node.requests")


def as_tidelog_error(error: Exception, *, doing: object) -> TidelogError:
    """The error for the caller of a failed handler. An exception that is no TidelogError is a defect: it is logged with
    its traceback and becomes UnknownServerError."""
    if isinstance(error, TidelogError):
        return error
    _log.error("a defect: %s failed", doing, exc_info=error)
    return UnknownServerError(
        f"{doing} failed on the node by a defect ({type(error).__name__}); see the traceback in the node's log"
    )
