"""The real `node.transport.Transport`: gRPC, with the code that the client uses too (`tidelog/_transport.py`)."""

from tidelog._transport import GrpcStream, GrpcTransport

__all__ = ["GrpcStream", "GrpcTransport"]
