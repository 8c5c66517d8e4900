"""Tidelog's client: `Producer`, `Consumer`, `Admin`, the errors that they raise and the values that they return.

`import tidelog` is fast: each name is loaded on first use, and grpc with the first client that is created.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Final

from tidelog import forks
from tidelog.grpc_environment import set_defaults

if TYPE_CHECKING:
    from tidelog import errors, sync
    from tidelog.client.admin import Admin, NewTopic, TopicDescription
    from tidelog.client.batch_delivery import BatchDelivery, RecordsNotQueued
    from tidelog.client.consumer import Consumer, ConsumerRecord
    from tidelog.client.delivery import Delivery, SendResult
    from tidelog.client.group_metadata import CommittedOffset
    from tidelog.client.outgoing_record import OutgoingRecord
    from tidelog.client.producer import Producer
    from tidelog.client.read_hooks import ConsumerInterceptor
    from tidelog.client.receipt import Receipt
    from tidelog.client.record_hooks import ProducerInterceptor
    from tidelog.client.serialization import DeserializationFailed, SerializationContext, SerializationFailed
    from tidelog.client.transaction import Transaction
    from tidelog.cluster_descriptions import ClusterDescription
    from tidelog.errors import (
        CommitFailed,
        CommitUnknown,
        ProducerFenced,
        TidelogError,
        TransactionAborted,
        TransactionOutcomeUnknown,
    )
    from tidelog.records import Record
    from tidelog.security.sasl_user import Sasl
    from tidelog.security.tls_files import Tls
    from tidelog.types import Acks, Codec, TopicPartition

__version__: Final = "0.1.0.dev0"

set_defaults(os.environ)
forks.register()

_MODULES: Final = ("errors", "sync")
"""Public modules that are loaded on first use, as the names of `_HOME`."""

_HOME: Final = {
    "Acks": "tidelog.types",
    "Admin": "tidelog.client.admin",
    "ClusterDescription": "tidelog.cluster_descriptions",
    "BatchDelivery": "tidelog.client.batch_delivery",
    "Codec": "tidelog.types",
    "CommitFailed": "tidelog.errors",
    "CommitUnknown": "tidelog.errors",
    "CommittedOffset": "tidelog.client.group_metadata",
    "Consumer": "tidelog.client.consumer",
    "ConsumerRecord": "tidelog.client.consumer",
    "Delivery": "tidelog.client.delivery",
    "NewTopic": "tidelog.client.admin",
    "Producer": "tidelog.client.producer",
    "ProducerFenced": "tidelog.errors",
    "Receipt": "tidelog.client.receipt",
    "Record": "tidelog.records",
    "ConsumerInterceptor": "tidelog.client.read_hooks",
    "ProducerInterceptor": "tidelog.client.record_hooks",
    "OutgoingRecord": "tidelog.client.outgoing_record",
    "SerializationContext": "tidelog.client.serialization",
    "SerializationFailed": "tidelog.client.serialization",
    "DeserializationFailed": "tidelog.client.serialization",
    "RecordsNotQueued": "tidelog.client.batch_delivery",
    "Sasl": "tidelog.security.sasl_user",
    "SendResult": "tidelog.client.delivery",
    "TidelogError": "tidelog.errors",
    "Tls": "tidelog.security.tls_files",
    "TopicDescription": "tidelog.client.admin",
    "TopicPartition": "tidelog.types",
    "Transaction": "tidelog.client.transaction",
    "TransactionAborted": "tidelog.errors",
    "TransactionOutcomeUnknown": "tidelog.errors",
}

__all__ = [
    "Acks",
    "Admin",
    "BatchDelivery",
    "ClusterDescription",
    "Codec",
    "CommitFailed",
    "CommitUnknown",
    "CommittedOffset",
    "Consumer",
    "ConsumerInterceptor",
    "ConsumerRecord",
    "Delivery",
    "DeserializationFailed",
    "NewTopic",
    "OutgoingRecord",
    "Producer",
    "ProducerFenced",
    "ProducerInterceptor",
    "Receipt",
    "Record",
    "RecordsNotQueued",
    "Sasl",
    "SendResult",
    "SerializationContext",
    "SerializationFailed",
    "TidelogError",
    "Tls",
    "TopicDescription",
    "TopicPartition",
    "Transaction",
    "TransactionAborted",
    "TransactionOutcomeUnknown",
    "__version__",
    "errors",
    "sync",
]


if not TYPE_CHECKING:  # to a type checker each public name is one of the imports above, and any other is a mistake

    def __getattr__(name: str) -> object:
        """Load a public name from its module on first use."""
        if name in _MODULES:
            return import_module(
                f"{__name__}.{name}"
            )  # a whole name would tie each test to all that the client imports
        home = _HOME.get(name)
        if home is None:
            errors_module = import_module(_HOME["TidelogError"])
            kind = getattr(errors_module, name, None)
            is_error = isinstance(kind, type) and issubclass(kind, errors_module.TidelogError)
            hint = f": it is tidelog.errors.{name}" if is_error else ""
            raise AttributeError(f"module 'tidelog' has no attribute {name!r}{hint}")
        value: object = getattr(import_module(home), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
