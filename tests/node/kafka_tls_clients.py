"""Clients of a listener of Kafka's protocol with TLS."""

from __future__ import annotations

import ssl

from node.listener_settings import ListenerTls
from node.listeners.kafka.kafka_tls import KafkaTls
from tests.node.kafka_frames import Connection, Listener, metadata
from tidelog.clock import MachineClock
from tidelog.security.tls_files import Tls


def tls_of(config: ListenerTls) -> KafkaTls:
    return KafkaTls("kafka", config, MachineClock())


def client_of(files: Tls, *, has_certificate: bool = True) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(files.ca))
    if has_certificate:
        assert files.certificate is not None
        context.load_cert_chain(files.certificate, files.key)
    return context


async def principal_of(listener: Listener, client: Connection) -> str:
    client.send(metadata("topic", correlation_id=5))
    assert await client.correlation_id() == 5
    return listener.service.contexts[-1].principal
