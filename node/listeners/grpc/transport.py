"""The `Transport` of a real node: gRPC, by the code that the client uses too (`tidelog/protocol/grpc_transport.py`)."""

from tidelog.protocol.grpc_transport import GrpcStream, GrpcTransport

__all__ = ["GrpcStream", "GrpcTransport"]
