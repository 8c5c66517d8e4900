"""The table of all RPCs, under the name by which the node knows it: `methods.DATA_FETCH_STREAM`.

The client sends the same calls and must not import `node`, so the table itself is `tidelog/protocol/methods.py`.
"""

from tidelog.protocol.methods import *  # noqa: F403
from tidelog.protocol.methods import ALL, Answer, Kind, Method, Request, WireMessage, of_service

__all__ = ["ALL", "Answer", "Kind", "Method", "Request", "WireMessage", "of_service"]
