"""UnregisterBroker of Kafka's protocol, for `kafka-cluster unregister`: removes a node that is gone for good (KIP-631).

A broker of Kafka that runs is unregistered too, and one that has replicas; here both are refused
(replication/controller/node_removal.py).
"""

from __future__ import annotations

from typing import Final

from node.api.table import ADMIN_UNREGISTER_NODE
from node.listeners.kafka.error_codes import NONE, code_of
from node.listeners.kafka.exchange import KafkaApi
from replication.controller.events import NodeUnregistered, UnregisterNode
from tidelog.errors import TidelogError
from tidelog.protocol.kafka.messages.unregister_broker_request import UNREGISTER_BROKER_REQUEST, UnregisterBrokerRequest
from tidelog.protocol.kafka.messages.unregister_broker_response import (
    UNREGISTER_BROKER_RESPONSE,
    UnregisterBrokerResponse,
)
from tidelog.types import NodeId


def _read(message: UnregisterBrokerRequest, _version: int) -> UnregisterNode:
    return UnregisterNode(NodeId(message.broker_id))


def _write(_message: UnregisterBrokerRequest, _answer: NodeUnregistered, _version: int) -> UnregisterBrokerResponse:
    return UnregisterBrokerResponse(0, NONE, None)


def _refuse(_message: UnregisterBrokerRequest, error: TidelogError, _version: int) -> UnregisterBrokerResponse:
    return UnregisterBrokerResponse(0, code_of(error), error.message)


UNREGISTER_BROKER: Final = KafkaApi(
    range(1),
    UNREGISTER_BROKER_REQUEST,
    UNREGISTER_BROKER_RESPONSE,
    ADMIN_UNREGISTER_NODE,
    _read,
    _write,
    _refuse,
)
