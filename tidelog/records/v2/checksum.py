"""Checksums: CRC-32C (Castagnoli) of v2 batches, CRC-32 (Ethernet, zip) of v0 and v1 messages.

CRC-32 is zlib's, which is part of Python. CRC-32C is computed by the `crc32c` package with the processor's instruction,
at more than 10 GB/s. If it cannot be imported, `crcmod` is used with a warning: 0.4 GB/s compiled and about 10 MB/s in
pure Python, too slow for a node.
Source: RFC 3720, appendix B.4 (CRC-32C and its check values), RFC 1952, section 8 (CRC-32); KIP-98.
"""

from __future__ import annotations

import warnings
import zlib
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Protocol, TypeAlias, cast

Input: TypeAlias = bytes | bytearray | memoryview


class CrcFunction(Protocol):
    """Checksum of a buffer. so_far: checksum of the preceding bytes, so that pieces need not be joined."""

    def __call__(self, data: Input, so_far: int = 0, /) -> int: ...


def hardware_crc32c() -> CrcFunction:
    """Return the function of the `crc32c` package. Raises ImportError if it is not installed."""
    # The package asks importlib.metadata for its own version, which loads `email`, `zipfile` and `csv`: more than a MiB
    # of each process. Its extension module needs none of that.
    package = find_spec("crc32c")
    spec = package and PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
    if spec and spec.loader:
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        return cast("CrcFunction", module.crc32c)
    from crc32c import crc32c as function

    return cast("CrcFunction", function)


def crcmod_crc32c() -> CrcFunction:
    """Return the function of `crcmod`, an independent implementation. Raises ImportError if it is not installed."""
    from crcmod.predefined import mkPredefinedCrcFun

    function = mkPredefinedCrcFun("crc-32c")
    return lambda data, so_far=0: cast("int", function(bytes(data), so_far))


def choose_crc32c() -> CrcFunction:
    """Return the fastest installed function; issue a RuntimeWarning if it is the slow one."""
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
"""CRC-32 of a buffer, 0 to 2**32 - 1; a second argument continues from a previous result."""
