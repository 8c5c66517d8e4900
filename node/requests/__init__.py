"""The request boundary of a node: types, handlers and sessions."""
