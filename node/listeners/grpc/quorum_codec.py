"""The gRPC form of the requests of the metadata quorum.

Messages and values have the same fields. What another node claims is passed on as it is: the handlers check it, after
they have checked that the request is meant for this cluster and this replica (`node/quorum/checks.py`).
"""

from __future__ import annotations

from typing import Any, Final

from node.listeners.grpc.codec import Codec
from node.metadata.message_mapping import Converter, MessageMapping
from node.requests.types.api import Answered, Api, Asked
from node.requests.types.quorum import (
    BEGIN_QUORUM_EPOCH,
    END_QUORUM_EPOCH,
    FETCH_METADATA,
    FETCH_SNAPSHOT,
    INTRODUCE,
    VOTE,
)
from tidelog.errors import TidelogError
from tidelog.protocol import methods, status
from tidelog.protocol.methods import Method

_ERRORS: Final[dict[object, Converter]] = {TidelogError: Converter(status.to_proto, status.from_proto)}


def _mapped(api: Api[Asked, Answered], method: Method[Any, Any]) -> Codec[Asked, Answered]:
    """The codec of an RPC whose messages have the fields of the values."""
    asked: MessageMapping[Any] = MessageMapping(api.asked, method.request.DESCRIPTOR)
    answered: MessageMapping[Any] = MessageMapping(api.answered, method.answer.DESCRIPTOR, converters=_ERRORS)
    return Codec(
        api,
        method,
        read_request=asked.from_message,
        write_answer=lambda value: method.answer(**answered.to_fields(value)),
        write_request=lambda value: method.request(**asked.to_fields(value)),
        read_answer=answered.from_message,
    )


QUORUM_CODECS: Final = (
    _mapped(INTRODUCE, methods.QUORUM_INTRODUCE),
    _mapped(FETCH_METADATA, methods.QUORUM_FETCH_METADATA),
    _mapped(VOTE, methods.QUORUM_VOTE),
    _mapped(BEGIN_QUORUM_EPOCH, methods.QUORUM_BEGIN_QUORUM_EPOCH),
    _mapped(END_QUORUM_EPOCH, methods.QUORUM_END_QUORUM_EPOCH),
    _mapped(FETCH_SNAPSHOT, methods.QUORUM_FETCH_SNAPSHOT),
)
"""One for each RPC of the service Quorum."""
