"""The table of all RPCs, under the name that the node uses: `methods.DATA_FETCH_STREAM`.

The client sends the same calls and must not import `node`, so the table itself is in `tidelog/protocol/methods.py`.
"""

from tidelog.protocol.methods import *  # noqa: F403
from tidelog.protocol.methods import ALL, Answer, Method, Request, WireMessage, of_service
from tidelog.protocol.methods import CallKind as Kind

__all__ = ["ALL", "Answer", "Kind", "Method", "Request", "WireMessage", "of_service"]
