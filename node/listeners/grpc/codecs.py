"""The codec of each API: a written one, or one that is derived from the fields of its values and messages.

The API `Data.Fetch` has the RPC `Fetch` of the service `tidelog.v1.Data`. Values of other nodes are passed on
unchecked: the handlers check them (`node/quorum/checks.py`), after they have checked that the request is meant for this
cluster.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from node.api.table import APIS
from node.listeners.grpc.codec import ApiCodec
from node.listeners.grpc.data_codec import DATA_CODECS
from node.listeners.grpc.derived_codec import derived
from tidelog.protocol import methods

_WRITTEN: Final = {codec.api.name: codec for codec in DATA_CODECS}
_METHODS: Final = {str(method): method for method in methods.ALL}


@cache
def codec_of(name: str) -> ApiCodec[Any, Any]:
    """The codec of an API."""
    return _WRITTEN.get(name) or derived(APIS[name], _METHODS[name])
