"""Requests of Kafka's clients and their answers, as bytes and as values, without a connection."""

from __future__ import annotations

from typing import Any

from node.listeners.kafka.exchange import Exchange, KafkaApi, head_of
from tests.node.kafka_frames import both_ways, decoded, request_frame


def name_of(kafka: KafkaApi) -> str:
    return kafka.request.message.__name__.removesuffix("Request")


def exchanged(kafka: KafkaApi, version: int, message: Any, answer: Any) -> Any:
    """The message of an answer to a message, after both have been bytes."""
    exchange, _ = begun(kafka, version, message)
    return answered(kafka, version, exchange.encode(answer, 0))


def begun(kafka: KafkaApi, version: int, message: Any) -> tuple[Exchange, Any]:
    frame = memoryview(request_frame(name_of(kafka), version, message, 7))[4:]
    body_at = 11 + (version >= kafka.request.flexible_from)
    exchange = Exchange(kafka, head_of(frame), body_at)
    return exchange, exchange.decode(frame)


def answered(kafka: KafkaApi, version: int, answer: Any) -> Any:
    data = b"".join(answer.pieces)
    assert len(data) == len(answer) == 4 + int.from_bytes(data[:4], "big")
    correlation_id, message = decoded(name_of(kafka), version, data[4:])
    assert correlation_id == 7
    return message


def read(kafka: KafkaApi, version: int, **fields: Any) -> Any:
    """The value of a request."""
    return begun(
        kafka, version, both_ways(f"{name_of(kafka)}Request").module.__dict__[f"{name_of(kafka)}Request"](**fields)
    )[1]


def request(name: str) -> Any:
    return both_ways(f"{name}Request").module
