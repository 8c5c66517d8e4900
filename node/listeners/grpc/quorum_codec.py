"""Codecs of the Quorum service.

Messages and values have the same fields. Values of another node are passed on unchecked: the handlers check them
(`node/quorum/checks.py`), after they have checked that the request is meant for this cluster and this replica.
"""

from __future__ import annotations

from typing import Final

from node.listeners.grpc.derived_codec import derived
from node.requests.types import quorum as apis
from tidelog.protocol import methods

QUORUM_CODECS: Final = (
    derived(apis.QUORUM_INTRODUCE, methods.QUORUM_INTRODUCE),
    derived(apis.QUORUM_FETCH_METADATA, methods.QUORUM_FETCH_METADATA),
    derived(apis.QUORUM_VOTE, methods.QUORUM_VOTE),
    derived(apis.QUORUM_BEGIN_QUORUM_EPOCH, methods.QUORUM_BEGIN_QUORUM_EPOCH),
    derived(apis.QUORUM_END_QUORUM_EPOCH, methods.QUORUM_END_QUORUM_EPOCH),
    derived(apis.QUORUM_FETCH_SNAPSHOT, methods.QUORUM_FETCH_SNAPSHOT),
)
"""One codec for each RPC of the service."""
