"""Varints and growing memory for the compiled hot loops, inlined into each of them.

A reader gets the end of the bytes, never reads beyond it, and returns NULL for what varint.py rejects.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc


cdef inline const uint8_t *read_varint(const uint8_t *at, const uint8_t *end, int32_t *value) noexcept nogil:
    """Read a 32-bit number; return the end position, or NULL."""
    cdef uint32_t folded, byte
    cdef int shift
    if at >= end:
        return NULL
    folded = at[0]
    at += 1
    if folded > 0x7F:
        folded &= 0x7F
        shift = 7
        while True:
            if at >= end:
                return NULL
            byte = at[0]
            at += 1
            if shift == 28:
                if byte > 0x0F:
                    return NULL
                folded |= byte << 28
                break
            folded |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
    value[0] = <int32_t> ((folded >> 1) ^ (0 - (folded & 1)))
    return at


cdef inline const uint8_t *read_varlong(const uint8_t *at, const uint8_t *end, int64_t *value) noexcept nogil:
    """Read a 64-bit number; return the end position, or NULL."""
    cdef uint64_t folded, byte
    cdef int shift
    if at >= end:
        return NULL
    folded = at[0]
    at += 1
    if folded > 0x7F:
        folded &= 0x7F
        shift = 7
        while True:
            if at >= end:
                return NULL
            byte = at[0]
            at += 1
            if shift == 63:
                if byte > 1:
                    return NULL
                folded |= byte << 63
                break
            folded |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
    value[0] = <int64_t> ((folded >> 1) ^ (0 - (folded & 1)))
    return at


cdef extern from *:
    """
    #define leading_zeros(number) __builtin_clzll(number)
    """
    unsigned int leading_zeros(uint64_t number) noexcept nogil


cdef inline uint64_t folded(int64_t value) noexcept nogil:
    return (<uint64_t> value << 1) ^ (0 - (<uint64_t> value >> 63))


cdef inline int varint_size(int64_t value) noexcept nogil:
    """Number of bytes that `write_varint` writes."""
    return (64 - leading_zeros(folded(value) | 1) + 6) // 7


cdef inline uint8_t *write_varint(uint8_t *at, int64_t value) noexcept nogil:
    """Write at most 10 bytes; return the end position."""
    cdef uint64_t left = folded(value)
    while left > 0x7F:
        at[0] = <uint8_t> (left & 0x7F | 0x80)
        left >>= 7
        at += 1
    at[0] = <uint8_t> left
    return at + 1


cdef struct Memory:
    uint8_t *data
    Py_ssize_t size
    Py_ssize_t room


cdef inline int reserve(Memory *memory, Py_ssize_t more) noexcept nogil:
    """Reserve `more` bytes after the used ones; the size at least doubles, so that appending has constant amortized
    cost. Returns 0, or -1 if there is no memory."""
    cdef Py_ssize_t room
    cdef void *moved
    if memory.room - memory.size >= more:
        return 0
    room = memory.size + more
    if room < 2 * memory.room:
        room = 2 * memory.room
    if room < 4096:
        room = 4096
    moved = realloc(memory.data, room)
    if moved == NULL:
        return -1
    memory.data = <uint8_t *> moved
    memory.room = room
    return 0


cdef inline void release(Memory *memory) noexcept nogil:
    free(memory.data)
    memory.data = NULL
    memory.size = memory.room = 0
