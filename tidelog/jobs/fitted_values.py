"""What a table has of a value: what the readers of all encodings return."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class FittedValue(NamedTuple):
    """A value as a table has it."""

    fields: dict[str, Any] | None
    """None: it does not fit."""
    reason: str | None
    """Why its bytes are kept; None: the fields say all."""


class ValueReader(Protocol):
    """Reads values of one schema."""

    schema: StructType

    def fit(self, value: bytes) -> FittedValue:
        """Read a value. Raises nothing for one that does not fit."""
