"""ApiVersions: which requests a listener serves. The listener itself answers it, before anything of the boundary: a
client must ask for it to learn how to authenticate.

An unknown version is answered in version 0 with the range of this API alone, so that the client asks again (KIP-511).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from node.listeners.kafka.error_codes import NONE
from node.listeners.kafka.exchange import ELEMENTS_MAX, Head, KafkaAnswer, KafkaApi, answer_of, client_of
from node.listeners.kafka.kafka_sasl import HANDSHAKE_KEY, HANDSHAKE_VERSIONS
from tidelog.errors import InvalidRequest, UnsupportedVersion
from tidelog.protocol.kafka.message_codec import Data
from tidelog.protocol.kafka.messages.api_versions_request import API_VERSIONS_REQUEST
from tidelog.protocol.kafka.messages.api_versions_response import API_VERSIONS_RESPONSE, ApiVersion, ApiVersionsResponse

KEY: Final = API_VERSIONS_REQUEST.api_key
VERSIONS: Final = range(5)

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class ApiVersions:
    """The answers of a listener with these APIs."""

    def __init__(self, apis: Iterable[KafkaApi]) -> None:
        self._own = (ApiVersion(KEY, VERSIONS[0], VERSIONS[-1]),)
        handshake = ApiVersion(HANDSHAKE_KEY, HANDSHAKE_VERSIONS[0], HANDSHAKE_VERSIONS[-1])
        offered = (*self._own, handshake, *map(_announced, apis))
        self._offered = tuple(sorted(offered, key=lambda each: each.api_key))

    def answer(self, frame: Data, head: Head) -> KafkaAnswer:
        """The answer to a request. Raises MalformedMessage."""
        if head.version not in VERSIONS:  # nothing but the head can be read
            return self._encoded(UnsupportedVersion.code, self._own, 0, head)
        _, body_at = client_of(frame, is_flexible=head.version >= API_VERSIONS_REQUEST.flexible_from)
        request, _ = API_VERSIONS_REQUEST.decode(frame, head.version, body_at, elements_max=ELEMENTS_MAX)
        names = (request.client_software_name, request.client_software_version) if head.version >= 3 else ()
        if not all(map(_SOFTWARE.fullmatch, names)):
            return self._encoded(InvalidRequest.code, (), head.version, head)
        return self._encoded(NONE, self._offered, head.version, head)

    def _encoded(self, error: int, keys: tuple[ApiVersion, ...], version: int, head: Head) -> KafkaAnswer:
        message = ApiVersionsResponse(error_code=error, api_keys=keys)
        body = API_VERSIONS_RESPONSE.encode_parts(message, version)
        # The header is plain in every version: a client must be able to read the answer to a version it guessed.
        return answer_of(body, head.correlation_id, is_flexible=False)


def _announced(kafka: KafkaApi) -> ApiVersion:
    first = kafka.versions[0] if kafka.announced_from is None else kafka.announced_from
    return ApiVersion(kafka.key, first, kafka.versions[-1])
