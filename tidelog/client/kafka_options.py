"""What options of Kafka's clients are called here: for the error that refuses an unknown one."""

from __future__ import annotations

from collections.abc import Iterable
from inspect import Parameter, signature
from typing import Final

RENAMED: Final = {
    "batch_size": "batch_bytes",
    "bootstrap_servers": "bootstrap",
    "buffer_memory": "buffer_bytes",
    "client_rack": "rack",
    "compression_type": "compression",
    "enable_auto_commit": "auto_commit",
    "fetch_max_wait_ms": "max_wait_ms",
    "fetch_min_bytes": "min_bytes",
    "group_id": "group",
    "group_instance_id": "instance_id",
    "group_remote_assignor": "server_assignor",
    "interceptor_classes": "interceptors",
    "isolation_level": "isolation",
    "max_batch_size": "batch_bytes",
    "max_partition_fetch_bytes": "fetch_bytes",
    "max_request_size": "record_bytes_max",
    "message_timeout_ms": "delivery_timeout_ms",
    "partition_assignment_strategy": "server_assignor",
    "queue_buffering_max_ms": "linger_ms",
}
"""By the names of aiokafka, kafka-python, librdkafka and the Java client, with underscores."""

ELSEWHERE: Final = {
    "api_version": "versions are found by themselves",
    "loop": "a client uses the event loop in which it is started",
    "max_poll_records": "pass max_records= to poll()",
    "on_delivery": "pass it to send() or enqueue()",
    "sasl_mechanism": "pass sasl=tidelog.Sasl(...)",
    "sasl_password": "pass sasl=tidelog.Sasl(...)",
    "sasl_plain_password": "pass sasl=tidelog.Sasl(...)",
    "sasl_plain_username": "pass sasl=tidelog.Sasl(...)",
    "sasl_username": "pass sasl=tidelog.Sasl(...)",
    "security_protocol": "pass tls=tidelog.Tls(...) and sasl=tidelog.Sasl(...)",
    "session_timeout_ms": "the nodes have the setting group.consumer.session.timeout.ms",
    "ssl_ca_location": "pass tls=tidelog.Tls(ca=...)",
    "ssl_cafile": "pass tls=tidelog.Tls(ca=...)",
    "ssl_context": "pass tls=tidelog.Tls(...)",
}

FOR_TESTS: Final = ("transport", "clock", "rng")


def unknown_option(kind: type, name: str, of_all_clients: Iterable[str]) -> TypeError:
    """The error for an option that this kind of client does not have. of_all_clients: options that each client has."""
    from difflib import get_close_matches  # only here: each start of a program would load it

    own = [each.name for each in signature(kind).parameters.values() if each.kind is not Parameter.VAR_KEYWORD]
    options = [option for option in dict.fromkeys([*own, *of_all_clients]) if option not in FOR_TESTS]
    plain = name.replace(".", "_")
    hint = f"it has {', '.join(options)}"
    if plain in options:
        hint = f"write {plain}="
    elif RENAMED.get(plain) in options:
        hint = f"use {RENAMED[plain]}="
    elif plain in ELSEWHERE:
        hint = ELSEWHERE[plain]
    elif near := get_close_matches(plain, options, n=1):
        hint = f"do you mean {near[0]}=?"
    return TypeError(f"{kind.__name__} has no option {name}=: {hint}")
