# cython: boundscheck=False, wraparound=False, initializedcheck=False
"""Compiled version of chain.follow_chain: the walk along the headers of a log's batches.

Invariants: no byte outside the buffer is read.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from tidelog.records.v2 import chain as reference
from tidelog.records.v2 import header as layout

cdef extern from *:
    """
    #include <string.h>
    static inline uint32_t big_endian_32(const uint8_t *at) {
        uint32_t number;
        memcpy(&number, at, 4);
    #if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        number = __builtin_bswap32(number);
    #endif
        return number;
    }
    """
    uint32_t big_endian_32(const uint8_t *at) noexcept nogil

cdef Py_ssize_t HEADER_BYTES = layout.HEADER_BYTES
cdef Py_ssize_t LOG_OVERHEAD = layout.LOG_OVERHEAD
cdef int32_t LENGTH_MIN = layout.LENGTH_MIN
cdef int64_t BASE_MAX = INT64_MAX - (<int64_t> 1 << 31)
cdef object Place = reference.Place


cdef inline int32_t int32_at(const uint8_t *at) noexcept nogil:
    return <int32_t> big_endian_32(at)


cdef inline int64_t int64_at(const uint8_t *at) noexcept nogil:
    return <int64_t> (<uint64_t> big_endian_32(at) << 32 | big_endian_32(at + 4))


def follow_chain(data, Py_ssize_t size_max, int64_t next_offset, int64_t up_to):
    """See chain.follow_chain."""
    cdef Py_buffer view
    cdef const uint8_t *at
    cdef Py_ssize_t limit, position = 0, before = 0
    cdef int64_t base, before_offset = next_offset
    cdef int32_t length, delta, batch_epoch, epoch = -1, before_epoch = -1
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    limit = min(size_max, view.len)
    while limit - position >= HEADER_BYTES:
        at = <const uint8_t *> view.buf + position
        base, length, batch_epoch = int64_at(at), int32_at(at + 8), int32_at(at + 12)
        if at[16] != 2 or length < LENGTH_MIN or length > limit - position - LOG_OVERHEAD:
            break
        delta = int32_at(at + 23)
        if base < next_offset or batch_epoch < epoch or delta < 0 or base > BASE_MAX or base + delta >= up_to:
            break
        before, before_offset, before_epoch = position, next_offset, epoch
        position += LOG_OVERHEAD + length
        next_offset, epoch = base + delta + 1, batch_epoch
    PyBuffer_Release(&view)
    return Place(before, before_offset, before_epoch), Place(position, next_offset, epoch)
