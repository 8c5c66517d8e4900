"""ApiVersions: which requests a listener serves. The listener itself answers it, before anything of the boundary: a
client must ask for it to learn how to authenticate.

An unknown version is answered in version 0 with the range of this API alone, so that the client asks again (KIP-511).
Clients use the second version of transactions only where the cluster has raised `transaction.version` to it (KIP-584,
KIP-890): the versions of requests tell them about one node, and a transaction needs several.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from node.listeners.kafka.error_codes import NONE
from node.listeners.kafka.exchange import ELEMENTS_MAX, Head, KafkaAnswer, KafkaApi, answer_of, client_of
from node.listeners.kafka.kafka_sasl import HANDSHAKE_KEY, HANDSHAKE_VERSIONS
from replication.controller.features import TRANSACTION_VERSION, TRANSACTION_VERSIONS, transaction_version
from tidelog.errors import InvalidRequest, UnsupportedVersion
from tidelog.protocol.kafka.message_codec import Data
from tidelog.protocol.kafka.messages.api_versions_request import API_VERSIONS_REQUEST
from tidelog.protocol.kafka.messages.api_versions_response import (
    API_VERSIONS_RESPONSE,
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

KEY: Final = API_VERSIONS_REQUEST.api_key
VERSIONS: Final = range(5)

_SUPPORTED: Final = (SupportedFeatureKey(TRANSACTION_VERSION, TRANSACTION_VERSIONS[0], TRANSACTION_VERSIONS[-1]),)
_SUPPORTED_FROM: Final = 4
"""Before, clients cannot read a supported feature whose lowest level is 0 (KAFKA-17011); Kafka leaves it out, too."""

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class ApiVersions:
    """The answers of a listener with these APIs."""

    def __init__(self, apis: Iterable[KafkaApi]) -> None:
        self._own = (ApiVersion(KEY, VERSIONS[0], VERSIONS[-1]),)
        handshake = ApiVersion(HANDSHAKE_KEY, HANDSHAKE_VERSIONS[0], HANDSHAKE_VERSIONS[-1])
        offered = (*self._own, handshake, *map(_announced, apis))
        self._offered = tuple(sorted(offered, key=lambda each: each.api_key))

    def answer(self, frame: Data, head: Head, feature_level: int) -> KafkaAnswer:
        """The answer to a request. feature_level: of the metadata; 0 while it is unknown. Raises MalformedMessage."""
        if head.version not in VERSIONS:  # nothing but the head can be read
            return _encoded(ApiVersionsResponse(UnsupportedVersion.code, self._own), 0, head)
        _, body_at = client_of(frame, is_flexible=head.version >= API_VERSIONS_REQUEST.flexible_from)
        request, _ = API_VERSIONS_REQUEST.decode(frame, head.version, body_at, elements_max=ELEMENTS_MAX)
        names = (request.client_software_name, request.client_software_version) if head.version >= 3 else ()
        if not all(map(_SOFTWARE.fullmatch, names)):
            return _encoded(ApiVersionsResponse(InvalidRequest.code, ()), head.version, head)
        return _encoded(self._message(head.version, feature_level), head.version, head)

    def _message(self, version: int, feature_level: int) -> ApiVersionsResponse:
        supported = _SUPPORTED if version >= _SUPPORTED_FROM else ()
        if not feature_level:
            return ApiVersionsResponse(NONE, self._offered, supported_features=supported)
        reached = transaction_version(feature_level)
        return ApiVersionsResponse(
            NONE,
            self._offered,
            supported_features=supported,
            # Clients keep what they learn from the highest one: a node that is behind does not take it back.
            finalized_features_epoch=feature_level,
            finalized_features=(FinalizedFeatureKey(TRANSACTION_VERSION, reached, reached),),
        )


def _encoded(message: ApiVersionsResponse, version: int, head: Head) -> KafkaAnswer:
    body = API_VERSIONS_RESPONSE.encode_parts(message, version)
    # The header is plain in every version: a client must be able to read the answer to a version it guessed.
    return answer_of(body, head.correlation_id, is_flexible=False)


def _announced(kafka: KafkaApi) -> ApiVersion:
    first = kafka.versions[0] if kafka.announced_from is None else kafka.announced_from
    return ApiVersion(kafka.key, first, kafka.versions[-1])
