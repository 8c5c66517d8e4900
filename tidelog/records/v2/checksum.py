"""The checksums: CRC-32C (Castagnoli) of a v2 batch, CRC-32 (that of Ethernet and zip) of a v0 or v1 message.

CRC-32 is zlib's, which every Python has. CRC-32C comes from the `crc32c` package, which has the processor's own
instruction compute it, beyond 10 GB/s; where it cannot be imported, `crcmod` serves, 0.4 GB/s compiled and some 10 MB/s
in pure Python, with a warning, since a node would crawl.
Source: RFC 3720, appendix B.4 (CRC-32C and its check values), RFC 1952, section 8 (CRC-32); KIP-98.
"""

from __future__ import annotations

import warnings
import zlib
from typing import Protocol, TypeAlias, cast

Input: TypeAlias = bytes | bytearray | memoryview


class CrcFunction(Protocol):
    """The checksum of a buffer. so_far: of what lies before it, so that pieces need not be joined."""

    def __call__(self, data: Input, so_far: int = 0, /) -> int: ...


def hardware_crc32c() -> CrcFunction:
    """The function of the `crc32c` package. ImportError where it is not installed."""
    from crc32c import crc32c as function

    return cast("CrcFunction", function)


def crcmod_crc32c() -> CrcFunction:
    """The function of `crcmod`: an independent implementation. ImportError where it is not installed."""
    from crcmod.predefined import mkPredefinedCrcFun

    function = mkPredefinedCrcFun("crc-32c")
    return lambda data, so_far=0: cast("int", function(bytes(data), so_far))


def choose_crc32c() -> CrcFunction:
    """The fastest one that is installed; a RuntimeWarning says when it is the slow one."""
    try:
        return hardware_crc32c()
    except ImportError:
        warnings.warn(
            "the package crc32c cannot be imported: checksums are computed by crcmod, 50 to 2,000 times slower; "
            "install crc32c",
            RuntimeWarning,
            stacklevel=2,
        )
        return crcmod_crc32c()


crc32c = choose_crc32c()
"""CRC-32C of a buffer, 0 to 2**32 - 1."""

crc32 = zlib.crc32
"""CRC-32 of a buffer, 0 to 2**32 - 1; a second argument goes on from what came before."""
