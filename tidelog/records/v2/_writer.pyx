# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Compiled version of records_buffer.RecordsBuffer: encodes the records of a v2 batch.

Invariants: the bytes equal those of the reference; a rejected record leaves nothing behind.
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytes cimport (
    _PyBytes_Resize,
    PyBytes_AS_STRING,
    PyBytes_CheckExact,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from tidelog.records.v2._varints cimport Memory, release, reserve, varint_size, write_varint

from tidelog.records.v2 import record as record_reference
from tidelog.records.v2 import records_buffer as reference
from tidelog.records.v2.checksum import crc32c

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    bint PyUnicode_IS_COMPACT_ASCII(object text)
    long long PyLong_AsLongLongAndOverflow(object number, int *beyond) except? -1

cdef enum:
    HEADER_BYTES = 61
    ATTRIBUTES_AT = 21
    CRC_AT = 17

cdef tuple NO_HEADERS = ()
cdef Py_ssize_t ROOM_MIN = 4096
cdef Py_ssize_t SPREAD = 8
cdef Py_ssize_t EXPECTED_BYTES_MAX = 1 << 20
cdef Py_ssize_t PAYLOAD_BYTES_MAX = reference.PAYLOAD_BYTES_MAX


cdef inline bytes as_bytes(data):
    """Return the bytes of a bytes-like object. Raises TypeError for other types."""
    return <bytes> data if PyBytes_CheckExact(data) else bytes(memoryview(data))


cdef object as_view(buffer):
    """Return the unsigned bytes of a buffer, empty for None."""
    return memoryview(b"" if buffer is None else buffer).cast("B")


cdef class Column:
    """One Arrow column of bytes; each value is checked against the buffers before it is read."""

    cdef bint _is_null
    cdef bint _has_bits
    cdef const uint8_t[::1] _bits
    cdef const uint8_t[::1] _ends
    cdef const uint8_t[::1] _data
    cdef Py_ssize_t _first
    cdef str _name

    def __init__(self, column, Py_ssize_t count, str name):
        self._name = name
        self._is_null = column is None
        self._has_bits = False
        if self._is_null:
            return
        bits, ends, data, self._first = column
        self._ends = as_view(ends)
        self._data = as_view(data)
        if self._first < 0 or (count and self._ends.shape[0] // 4 < self._first + count + 1):
            raise reference.damaged_column(name, self._ends.shape[0] // 4)
        if bits is not None:
            self._bits = as_view(bits)
            self._has_bits = True
            if self._bits.shape[0] < (self._first + count + 7) // 8:
                raise reference.damaged_column(name, 8 * self._bits.shape[0])

    cdef inline Py_ssize_t get(self, Py_ssize_t row, const uint8_t **data) except -2:
        """Return the size of the value, -1 for null, and its position."""
        cdef Py_ssize_t at
        cdef int32_t begin, end
        if self._is_null:
            return -1
        at = self._first + row
        if self._has_bits and not self._bits[at >> 3] >> (at & 7) & 1:
            return -1
        memcpy(&begin, &self._ends[4 * at], 4)
        memcpy(&end, &self._ends[4 * at + 4], 4)
        if begin < 0 or end < begin or end > self._data.shape[0]:
            raise reference.damaged_column(self._name, row)
        if end > begin:
            data[0] = &self._data[begin]
        return end - begin


def list_column(Py_ssize_t count, column):
    """Return the values of an Arrow column as a list of bytes, None for null. column: as in `extend_columns`.

    Raises CorruptRecord for ends outside the bytes.
    """
    cdef Column values = Column(column, count, "value")
    cdef const uint8_t *data = NULL
    cdef list found = []
    cdef Py_ssize_t row, size
    for row in range(count):
        size = values.get(row, &data)
        found.append(None if size < 0 else PyBytes_FromStringAndSize(<const char *> data if size else NULL, size))
    return found


@cython.final
cdef class RecordsBuffer:
    """See records_buffer.RecordsBuffer."""

    cdef PyObject *_store  # bytes: room for a batch header, then the records, then unused bytes
    cdef bint _given  # the store is a batch that a caller has: it is copied before any change
    cdef Py_ssize_t _size
    cdef Py_ssize_t _room
    cdef Memory _headers
    cdef Py_ssize_t _views
    cdef bint _has_base
    cdef int64_t _base_timestamp
    cdef readonly int64_t base_offset
    cdef readonly int64_t last_offset
    cdef readonly int64_t max_timestamp
    cdef readonly Py_ssize_t count

    def __init__(self, int64_t base_offset=0, base_timestamp=None):
        self._size = self._headers.size = 0
        self.base_offset, self.last_offset = base_offset, base_offset - 1
        self._has_base = base_timestamp is not None
        self._base_timestamp = base_timestamp if self._has_base else -1
        self.max_timestamp = -1
        self.count = 0

    def __dealloc__(self):
        Py_XDECREF(self._store)
        release(&self._headers)

    @property
    def size(self):
        return self._size

    @property
    def base_timestamp(self):
        return self._base_timestamp if self._has_base else None

    def append(self, key, value, timestamp, headers=(), offset=None):
        """See records_buffer.RecordsBuffer.append."""
        cdef int64_t at
        if offset is None:
            self._append(key, value, self._timestamp(timestamp), headers, self.last_offset + 1)
        else:
            if offset > INT64_MAX:
                raise reference.too_large(0, offset, self._size, self.base_offset)
            if offset <= self.last_offset:
                raise reference.not_behind(offset, self.last_offset)
            at = offset
            self._append(key, value, self._timestamp(timestamp), headers, at)
        return self._size

    def extend(self, records):
        """See records_buffer.RecordsBuffer.extend."""
        cdef Py_ssize_t begun = self._size
        for key, value, timestamp, headers in records:
            self._append(key, value, self._timestamp(timestamp), headers, self.last_offset + 1)
            if begun >= 0:
                self._expect(records, self._size - begun)
                begun = -1
        return self._size

    def extend_columns(self, Py_ssize_t count, key, value, timestamps, Py_ssize_t first):
        """Append rows of Arrow columns. key, value: (validity bits or None, ends, bytes, first row), None for all
        null. timestamps: 64-bit numbers; the first row is `first`.

        Raises as `append`, and CorruptRecord for ends outside the bytes.
        """
        cdef Column keys = Column(key, count, "key")
        cdef Column values = Column(value, count, "value")
        cdef Py_ssize_t row
        cdef Py_ssize_t size = 0
        cdef const uint8_t *key_data = NULL
        cdef const uint8_t *value_data = NULL
        cdef const uint8_t[::1] times = as_view(timestamps)
        cdef int64_t timestamp
        cdef Py_ssize_t key_size, value_size
        if first < 0 or count < 0 or times.shape[0] // 8 < first + count:
            raise reference.damaged_column("timestamp", times.shape[0] // 8)
        self._headers.size = 0
        for row in range(count):
            key_size = keys.get(row, &key_data)
            value_size = values.get(row, &value_data)
            memcpy(&timestamp, &times[8 * (first + row)], 8)
            if timestamp < -1 or timestamp == INT64_MAX:
                raise reference.bad_timestamp(timestamp)
            self.put(key_data, key_size, value_data, value_size, timestamp, self.last_offset + 1)
            if row == 0:
                size = self._size if self.count == 1 else 0
                self._make_room(min((size + SPREAD) * count, EXPECTED_BYTES_MAX))
        return self._size

    def payload(self):
        """See records_buffer.RecordsBuffer.payload. A view without a copy: no append is possible while it is in use."""
        return memoryview(self)

    def batch(self, head):
        """See records_buffer.RecordsBuffer.batch. Without a copy: the store becomes the batch."""
        cdef const uint8_t[::1] fields = head
        cdef uint8_t *data
        cdef uint32_t crc
        cdef int place
        if fields.shape[0] != HEADER_BYTES:
            raise ValueError(f"a batch header has {HEADER_BYTES} bytes, not {fields.shape[0]}")
        self._ensure_no_views()
        if self._store == NULL or self._given:
            self._move(self._size)
        if self._room != self._size:
            try:
                _PyBytes_Resize(&self._store, HEADER_BYTES + self._size)
            except MemoryError:
                self._size = self._room = self.count = 0
                raise
            self._room = self._size
        data = self._data()
        memcpy(data, &fields[0], HEADER_BYTES)
        crc = crc32c(memoryview(<object> self._store)[ATTRIBUTES_AT:])
        for place in range(4):
            data[CRC_AT + place] = <uint8_t> (crc >> (24 - 8 * place))
        self._given = True
        return <object> self._store

    cdef inline uint8_t *_data(self) noexcept:
        return <uint8_t *> PyBytes_AS_STRING(<object> self._store)

    cdef int _ensure_no_views(self) except -1:
        if self._views:
            raise BufferError("records are appended while a view of them is held: release it first")
        return 0

    cdef int _move(self, Py_ssize_t room) except -1:
        """Copy into a new store with room for the given number of bytes of records."""
        cdef object moved = PyBytes_FromStringAndSize(NULL, HEADER_BYTES + room)
        if self._size:
            memcpy(PyBytes_AS_STRING(moved), self._data(), HEADER_BYTES + self._size)
        Py_XDECREF(self._store)
        Py_INCREF(moved)
        self._store = <PyObject *> moved
        self._given, self._room = False, room
        return 0

    cdef inline int _make_room(self, Py_ssize_t more) except -1:
        """Reserve more bytes; the size at least doubles, so that appending has constant amortized cost."""
        if self._room - self._size >= more and not self._given:
            return 0
        return self._move(max(self._size + more, min(2 * self._room, PAYLOAD_BYTES_MAX), ROOM_MIN))

    def __getbuffer__(self, Py_buffer *view, int flags):
        if self._store == NULL:
            self._move(0)
        PyBuffer_FillInfo(view, self, self._data() + HEADER_BYTES, self._size, 1, flags)
        self._views += 1

    def __releasebuffer__(self, Py_buffer *view):
        self._views -= 1

    cdef inline int64_t _timestamp(self, timestamp) except? -2:
        cdef int beyond
        cdef int64_t number = PyLong_AsLongLongAndOverflow(timestamp, &beyond)
        if number < -1 or beyond or number == INT64_MAX:
            raise reference.bad_timestamp(timestamp)
        return number

    cdef int _expect(self, records, Py_ssize_t each) except -1:
        """Reserve memory for records like the first one, so that memory moves less often."""
        if type(records) is list:
            self._make_room(min((each + SPREAD) * len(<list> records), EXPECTED_BYTES_MAX))
        return 0

    cdef inline int _append(self, key, value, int64_t timestamp, headers, int64_t offset) except -1:
        cdef bytes key_bytes, value_bytes
        self._headers.size = 0
        if not (headers is NO_HEADERS or type(headers) is list and not <list> headers) and headers:
            self._encode_headers(tuple(headers))
        if PyBytes_CheckExact(key) and PyBytes_CheckExact(value):
            return self.put(
                <const uint8_t *> PyBytes_AS_STRING(key),
                PyBytes_GET_SIZE(key),
                <const uint8_t *> PyBytes_AS_STRING(value),
                PyBytes_GET_SIZE(value),
                timestamp,
                offset,
            )
        key_bytes = b"" if key is None else as_bytes(key)
        value_bytes = b"" if value is None else as_bytes(value)
        return self.put(
            <const uint8_t *> PyBytes_AS_STRING(key_bytes),
            -1 if key is None else PyBytes_GET_SIZE(key_bytes),
            <const uint8_t *> PyBytes_AS_STRING(value_bytes),
            -1 if value is None else PyBytes_GET_SIZE(value_bytes),
            timestamp,
            offset,
        )

    cdef int put(
        self,
        const uint8_t *key,
        Py_ssize_t key_size,
        const uint8_t *value,
        Py_ssize_t value_size,
        int64_t timestamp,
        int64_t offset,
    ) except -1:
        """Append one record; its encoded headers, if any, are in `_headers`. Sizes are -1 for null."""
        cdef int64_t delta = timestamp - (self._base_timestamp if self._has_base else timestamp)
        cdef int64_t offset_delta = offset - self.base_offset
        cdef Py_ssize_t headers_size = self._headers.size if self._headers.size else 1
        cdef Py_ssize_t body, size
        cdef uint8_t *at
        body = (
            1
            + varint_size(delta)
            + varint_size(offset_delta)
            + varint_size(key_size)
            + varint_size(value_size)
            + headers_size
        )
        if key_size > 0:
            body += key_size
        if value_size > 0:
            body += value_size
        size = body + varint_size(body)
        if offset_delta > INT32_MAX or size > PAYLOAD_BYTES_MAX - self._size:
            raise reference.too_large(size, offset, self._size, self.base_offset)
        self._ensure_no_views()
        self._make_room(size)
        at = self._data() + HEADER_BYTES + self._size
        at = write_varint(at, body)
        at[0] = 0
        at = write_varint(at + 1, delta)
        at = write_varint(at, offset_delta)
        at = write_varint(at, key_size)
        if key_size > 0:
            memcpy(at, key, key_size)
            at += key_size
        at = write_varint(at, value_size)
        if value_size > 0:
            memcpy(at, value, value_size)
            at += value_size
        if self._headers.size:
            memcpy(at, self._headers.data, headers_size)
        else:
            at[0] = 0
        self._size += size
        self.last_offset = offset
        if not self._has_base:
            self._has_base, self._base_timestamp = True, timestamp
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        self.count += 1
        return 0

    cdef int _encode_headers(self, tuple headers) except -1:
        cdef Py_ssize_t size
        cdef const char *text
        cdef bytes encoded
        self._put_number(len(headers))
        for name, value in headers:
            if PyUnicode_IS_COMPACT_ASCII(<str?> name):
                text = PyUnicode_AsUTF8AndSize(name, &size)
                self._put_bytes(text, size)
            else:
                encoded = record_reference.header_key(name)
                self._put_bytes(PyBytes_AS_STRING(encoded), PyBytes_GET_SIZE(encoded))
            if value is None:
                self._put_number(-1)
            else:
                encoded = as_bytes(value)
                self._put_bytes(PyBytes_AS_STRING(encoded), PyBytes_GET_SIZE(encoded))
        return 0

    cdef inline int _put_number(self, int64_t number) except -1:
        if reserve(&self._headers, 10) < 0:
            raise MemoryError
        self._headers.size = write_varint(self._headers.data + self._headers.size, number) - self._headers.data
        return 0

    cdef inline int _put_bytes(self, const char *data, Py_ssize_t size) except -1:
        self._put_number(size)
        if reserve(&self._headers, size) < 0:
            raise MemoryError
        memcpy(self._headers.data + self._headers.size, data, size)
        self._headers.size += size
        return 0
