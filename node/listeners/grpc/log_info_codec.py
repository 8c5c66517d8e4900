"""The gRPC form of the question how much of a partition a replica has (GetReplicaLogInfo in data.proto)."""

from __future__ import annotations

from typing import Final

from node.listeners.grpc.derived_codec import derived
from node.requests.types.log_info import DATA_GET_REPLICA_LOG_INFO
from node.runtime import methods

GET_REPLICA_LOG_INFO: Final = derived(DATA_GET_REPLICA_LOG_INFO, methods.DATA_GET_REPLICA_LOG_INFO)
