"""The record bytes of a request or an answer."""

from __future__ import annotations

from typing import TypeAlias

from tidelog.types import Buffer

Records: TypeAlias = Buffer
"""Whole record batches, exactly as stored on disk; a codec passes them on and does not copy them. They must not change
while a value refers to them. A listener that can use sendfile may add a slice of a file (file, position, size) to this
type; gRPC needs the bytes."""
