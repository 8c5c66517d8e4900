"""The wire protocol between clients and nodes: messages, methods, status, transport."""
