"""A record of an internal topic of coordinators: a typed key, and a typed value or none.

Not here: the bytes (formats/), the keys and values (group_records.py, transaction_records.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

K_co = TypeVar("K_co", covariant=True)
V_co = TypeVar("V_co", covariant=True)


@dataclass(frozen=True, slots=True)
class CoordinatorRecord(Generic[K_co, V_co]):
    """One record. value: None deletes what the key stands for (a tombstone)."""

    key: K_co
    value: V_co | None
