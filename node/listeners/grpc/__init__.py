"""The gRPC listener: sockets, services, health, and the codec between messages and values."""
