# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Compiled version of row_digest.py."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

cdef uint64_t MULTIPLIER = 0x9E3779B97F4A7C15U
cdef uint64_t NULL_WORD = 0xD6E8FEB86659FD93U


cdef inline uint64_t fold(uint64_t digest, uint64_t word) noexcept nogil:
    digest = (digest ^ word) * MULTIPLIER
    return digest ^ digest >> 32


cdef inline uint64_t little(const uint8_t *data) noexcept nogil:
    return (
        <uint64_t> data[0] | <uint64_t> data[1] << 8 | <uint64_t> data[2] << 16 | <uint64_t> data[3] << 24
        | <uint64_t> data[4] << 32 | <uint64_t> data[5] << 40 | <uint64_t> data[6] << 48 | <uint64_t> data[7] << 56
    )


cdef inline uint64_t fold_data(uint64_t digest, const uint8_t *data, Py_ssize_t size) noexcept nogil:
    cdef uint8_t rest[8]
    cdef Py_ssize_t at = 0
    digest = fold(digest, <uint64_t> size)
    while at + 8 <= size:
        digest = fold(digest, little(data + at))
        at += 8
    if at < size:
        rest[:] = [0, 0, 0, 0, 0, 0, 0, 0]
        memcpy(rest, data + at, size - at)
        digest = fold(digest, little(rest))
    return digest


cdef inline uint64_t fold_entry(uint64_t digest, object entry) except? 0:
    if entry is None:
        return fold(digest, NULL_WORD)
    if not PyBytes_CheckExact(entry):
        raise TypeError(f"expected bytes or None, not {type(entry).__name__}")
    return fold_data(digest, <const uint8_t *> PyBytes_AS_STRING(entry), PyBytes_GET_SIZE(entry))


def sum_of_rows(list values, list keys, list timestamps, const int[::1] partitions, const uint64_t[::1] seeds):
    """See row_digest._sum_of_rows."""
    cdef Py_ssize_t count = PyList_GET_SIZE(values)
    cdef Py_ssize_t row
    cdef uint64_t digest
    cdef uint64_t total = 0
    cdef bint is_shared = seeds.shape[0] == 1
    cdef object time
    if keys is not None and PyList_GET_SIZE(keys) != count:
        raise ValueError(f"{PyList_GET_SIZE(keys)} keys and {count} values")
    if timestamps is not None and PyList_GET_SIZE(timestamps) != count:
        raise ValueError(f"{PyList_GET_SIZE(timestamps)} timestamps and {count} values")
    if partitions is not None and partitions.shape[0] != count:
        raise ValueError(f"{partitions.shape[0]} partitions and {count} values")
    if not is_shared and seeds.shape[0] != count:
        raise ValueError(f"{seeds.shape[0]} seeds and {count} values")
    for row in range(count):
        digest = seeds[0] if is_shared else seeds[row]
        if keys is None:
            digest = fold(digest, NULL_WORD)
        else:
            digest = fold_entry(digest, <object> PyList_GET_ITEM(keys, row))
        digest = fold_entry(digest, <object> PyList_GET_ITEM(values, row))
        time = None if timestamps is None else <object> PyList_GET_ITEM(timestamps, row)
        digest = fold(digest, NULL_WORD if time is None else <uint64_t> <int64_t> time)
        if partitions is None or partitions[row] < 0:
            digest = fold(digest, NULL_WORD)
        else:
            digest = fold(digest, <uint64_t> partitions[row])
        total += digest
    return total
