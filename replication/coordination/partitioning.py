"""Which partition of an internal topic a group or a transactional id belongs to.

Source: Kafka's GroupCoordinatorService and TransactionStateManager (`partitionFor`): the absolute value of Java's
`String.hashCode`, modulo the partitions. The smallest number has no absolute value in 32 bits and counts as 0.
"""

from __future__ import annotations

from array import array
from typing import Final

_UINT32_MAX: Final = 2**32 - 1
_INT32_MIN: Final = -(2**31)


def partition_of(key: str, partitions: int) -> int:
    """Return the partition of a group id or transactional id. partitions: of the internal topic, at least 1."""
    code = java_hash_code(key)
    return (0 if code == _INT32_MIN else abs(code)) % partitions


def java_hash_code(text: str) -> int:
    """Return `String.hashCode`: over the UTF-16 code units, each step times 31, as a signed 32-bit integer."""
    code = 0
    for unit in array("H", text.encode("utf-16", "surrogatepass")[2:]):  # native byte order, without its mark
        code = (31 * code + unit) & _UINT32_MAX
    return code if code < 2**31 else code - 2**32
