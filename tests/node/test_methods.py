"""The table of RPCs agrees with the proto files."""

from __future__ import annotations

from google.protobuf.descriptor import ServiceDescriptor

from tidelog.protocol import methods, wire
from tidelog.protocol.rpc import CallKind
from tidelog.protocol.v1 import (
    admin_pb2,
    controller_pb2,
    data_pb2,
    groups_pb2,
    quorum_pb2,
    remote_logs_pb2,
    sasl_pb2,
    transactions_pb2,
)

FILES = (data_pb2, admin_pb2, controller_pb2, quorum_pb2, sasl_pb2, groups_pb2, transactions_pb2, remote_logs_pb2)


def test_the_table_has_every_rpc_of_every_service_with_its_messages() -> None:
    services: list[ServiceDescriptor] = [
        service for file in FILES for service in file.DESCRIPTOR.services_by_name.values()
    ]
    expected = {
        f"/{service.full_name}/{rpc.name}": (
            rpc.input_type.name,
            rpc.output_type.name,
            (rpc.client_streaming, rpc.server_streaming),
        )
        for service in services
        for rpc in service.methods
    }
    table = {
        method.path: (
            wire.name_of(method.request),
            wire.name_of(method.answer),
            (method.kind is CallKind.STREAM,) * 2,
        )
        for method in methods.ALL
    }
    assert table == expected


def test_names_of_attributes_are_snake_case() -> None:
    assert methods.DATA_FETCH_STREAM.attribute == "fetch_stream"
    assert methods.DATA_OFFSET_FOR_LEADER_EPOCH.attribute == "offset_for_leader_epoch"
    assert [method.attribute for method in methods.of_service(methods.QUORUM)] == [
        "introduce",
        "fetch_metadata",
        "vote",
        "begin_quorum_epoch",
        "end_quorum_epoch",
        "fetch_snapshot",
    ]
