# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Compiled version of columns.ColumnsBuffer: decodes records of v2 batches into Arrow's buffers.

Invariants: no byte outside the payload is read; a rejected payload leaves no row behind; no Python object is created
per record. The first invalid record is passed to the reference, which raises the error.
Source: Arrow's columnar format (offsets of 32 bits, validity bitmaps with the lowest bit first).
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t
from libc.stdlib cimport malloc
from libc.string cimport memcpy, memset

from tidelog.records.v2._varints cimport Memory, read_varint, read_varlong, release, reserve

from tidelog.records.v2 import columns as reference
from tidelog.records.v2 import record as record_reference
from tidelog.errors import CorruptRecord

cdef extern from *:
    """
    static inline int add_overflows(long long a, long long b, long long *sum) {
        return __builtin_add_overflow(a, b, sum);
    }
    """
    bint add_overflows(long long a, long long b, long long *sum) noexcept nogil

cdef Py_ssize_t RELEASE_BYTES = 1 << 18
cdef Py_ssize_t EXPECTED_BYTES_MAX = 1 << 24
cdef Py_ssize_t RECORD_BYTES_MIN = 7

cdef enum:
    SPARES = 2
    SPARE_BYTES_MIN = 1 << 20

# Memory of columns that are gone, to be filled again: the kernel clears each page of fresh memory, which takes as long as
# to copy the values into it. Two: a reader has one batch while the next one is made.
cdef Memory[SPARES] spares


cdef bint keep_spare(Memory *memory) noexcept:
    """Keep the memory, if it is large and a place is free or has less. Returns whether it is kept."""
    cdef Memory *least = &spares[0]
    cdef int place
    if not SPARE_BYTES_MIN <= memory.room <= 2 * EXPECTED_BYTES_MAX:
        return False
    for place in range(1, SPARES):
        if spares[place].room < least.room:
            least = &spares[place]
    if least.room >= memory.room:
        return False
    release(least)
    least.data, least.room = memory.data, memory.room
    return True


cdef void take_spare(Memory *memory, Py_ssize_t size) noexcept:
    """Give the empty memory the smallest spare one that has room for this number of bytes, if there is one."""
    cdef Memory *found = NULL
    cdef int place
    for place in range(SPARES):
        if spares[place].room >= size and (found == NULL or spares[place].room < found.room):
            found = &spares[place]
    if found != NULL:
        memory.data, memory.room = found.data, found.room
        found.data = NULL
        found.room = 0


@cython.final
cdef class Block:
    """Memory filled by a column; read-only for its users."""

    cdef Memory _memory

    def __dealloc__(self):
        if not keep_spare(&self._memory):
            release(&self._memory)

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self._memory.data, self._memory.size, 1, flags)


cdef object block_of(Memory *memory):
    """Move the content out of the memory, which is empty afterwards."""
    cdef Block block = Block.__new__(Block)
    if memory.data == NULL and reserve(memory, 1) < 0:
        raise MemoryError
    block._memory = memory[0]
    memory.data = NULL
    memory.size = memory.room = 0
    return block


cdef enum:
    SHORT = 16


cdef struct Binary:
    # A column of bytes: end of each value, the values, a validity bit for each, the number of nulls.
    Memory ends
    Memory data
    Memory valid
    Py_ssize_t count
    Py_ssize_t nulls


cdef void drop(Binary *column) noexcept nogil:
    release(&column.ends)
    release(&column.data)
    release(&column.valid)


cdef int ready(Binary *column, Py_ssize_t rows, Py_ssize_t size) noexcept nogil:
    """Reserve memory for `more` rows with the given total of bytes; all are valid until a bit is cleared."""
    cdef Py_ssize_t bytes_of_bits = (column.count + rows + 7) // 8
    column.ends.size = 4 * column.count
    if reserve(&column.ends, 4 * (rows + 1)) < 0 or reserve(&column.data, size + SHORT) < 0:
        return -1
    if column.count == 0:
        (<int32_t *> column.ends.data)[0] = 0
    if bytes_of_bits > column.valid.size:
        if reserve(&column.valid, bytes_of_bits - column.valid.size) < 0:
            return -1
        memset(column.valid.data + column.valid.size, 0xFF, bytes_of_bits - column.valid.size)
        column.valid.size = bytes_of_bits
    return 0


cdef inline void put(Binary *column, const uint8_t *data, Py_ssize_t size, Py_ssize_t readable=0) noexcept nogil:
    """Append a value, null if the size is -1; `ready` has reserved the memory. readable: number of bytes from `data` on
    that may be read; a short value is copied together with the bytes after it, in one move."""
    if 0 < size <= SHORT and readable >= SHORT:
        memcpy(column.data.data + column.data.size, data, SHORT)
        column.data.size += size
    elif size > 0:
        memcpy(column.data.data + column.data.size, data, size)
        column.data.size += size
    elif size < 0:
        column.valid.data[column.count >> 3] &= <uint8_t> ~(1 << (column.count & 7))
        column.nulls += 1
    column.count += 1
    (<int32_t *> column.ends.data)[column.count] = <int32_t> column.data.size


cdef void back(Binary *column, Binary *before) noexcept nogil:
    """Restore the previous state, except for the reserved memory."""
    if column.valid.size and column.nulls != before.nulls:
        if before.count < 8 * column.valid.size:
            column.valid.data[before.count >> 3] |= <uint8_t> (0xFF << (before.count & 7))
        if (before.count >> 3) + 1 < column.valid.size:
            memset(column.valid.data + (before.count >> 3) + 1, 0xFF, column.valid.size - (before.count >> 3) - 1)
    column.count, column.nulls, column.data.size = before.count, before.nulls, before.data.size


cdef struct Scan:
    const uint8_t *at
    const uint8_t *end
    int64_t base_offset
    int64_t base_timestamp
    bint appended
    int64_t append_time
    int64_t first
    int64_t behind
    Py_ssize_t index
    Py_ssize_t count


cdef enum:
    DONE, UNSOUND, NO_MEMORY


@cython.final
cdef class ColumnsBuffer:
    """See columns.ColumnsBuffer."""

    cdef Binary _key
    cdef Binary _value
    cdef Binary _names
    cdef Binary _contents
    cdef Memory _offsets
    cdef Memory _timestamps
    cdef Memory _types
    cdef Memory _header_ends
    cdef Memory _header_valid
    cdef Py_ssize_t _header_nulls
    cdef bint _wants_key, _wants_value, _wants_offset, _wants_timestamp, _wants_type, _wants_headers
    cdef readonly tuple names
    cdef readonly Py_ssize_t rows

    def __cinit__(self, names):
        self.names = reference.checked_names(names)
        self._wants_key, self._wants_value = "key" in self.names, "value" in self.names
        self._wants_offset, self._wants_timestamp = "offset" in self.names, "timestamp" in self.names
        self._wants_type, self._wants_headers = "timestampType" in self.names, "headers" in self.names

    def __dealloc__(self):
        drop(&self._key)
        drop(&self._value)
        drop(&self._names)
        drop(&self._contents)
        release(&self._offsets)
        release(&self._timestamps)
        release(&self._types)
        release(&self._header_ends)
        release(&self._header_valid)

    @property
    def size(self):
        """See columns.ColumnsBuffer.size."""
        return self._key.data.size + self._value.data.size + self._names.data.size + self._contents.data.size

    def expect(self, Py_ssize_t size):
        """See columns.ColumnsBuffer.expect."""
        if not self._wants_value or not 0 < size <= EXPECTED_BYTES_MAX:
            return
        if self._value.data.data == NULL:
            take_spare(&self._value.data, size)
        if reserve(&self._value.data, size) < 0:
            raise MemoryError

    def add(
        self,
        data,
        Py_ssize_t count,
        int64_t base_offset,
        int64_t base_timestamp,
        append_time,
        int timestamp_type,
        int64_t first,
        int64_t behind,
    ):
        """See columns.ColumnsBuffer.add."""
        cdef Py_buffer view
        cdef Scan scan
        cdef Binary key = self._key
        cdef Binary value = self._value
        cdef Binary names = self._names
        cdef Binary contents = self._contents
        cdef Py_ssize_t rows = self.rows
        cdef Py_ssize_t header_nulls = self._header_nulls
        cdef int state
        cdef const uint8_t *start
        cdef Py_ssize_t left
        scan.appended = append_time is not None
        scan.append_time = append_time if scan.appended else 0
        scan.base_offset, scan.base_timestamp = base_offset, base_timestamp
        scan.first, scan.behind, scan.index, scan.count = first, behind, 0, count
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            if view.len > INT32_MAX // 3 - self.size:
                raise reference.too_much(view.len, self.size)
            start = scan.at = <const uint8_t *> view.buf
            scan.end = start + view.len
            state = self._ready(min(max(count, 0), view.len // RECORD_BYTES_MIN + 1), view.len)
            if state == DONE:
                if view.len >= RELEASE_BYTES:
                    with nogil:
                        state = self._scan(&scan)
                else:
                    state = self._scan(&scan)
            left = scan.end - scan.at
            if state != DONE or left:
                self.rows, self._header_nulls = rows, header_nulls
                back(&self._key, &key)
                back(&self._value, &value)
                back(&self._names, &names)
                back(&self._contents, &contents)
                self._back_headers()
                if state == NO_MEMORY:
                    raise MemoryError
                if state == UNSOUND:
                    _ask_reference(bytes(data), &scan, scan.at - start)
                raise record_reference.left_over(left, count, base_offset)
        finally:
            PyBuffer_Release(&view)
        if self._wants_type:
            while rows < self.rows:
                (<int32_t *> self._types.data)[rows] = timestamp_type
                rows += 1

    def append(self, int64_t offset, int64_t timestamp, key, value, headers, int timestamp_type):
        """See columns.ColumnsBuffer.append."""
        cdef bytes data
        cdef Py_ssize_t size = (len(key) if key else 0) + (len(value) if value else 0)
        if headers:
            raise reference.headers_of_messages()
        if size > INT32_MAX // 3 - self.size:
            raise reference.too_much(size, self.size)
        if self._ready(1, size) != DONE:
            raise MemoryError
        if self._wants_key:
            data = b"" if key is None else key
            put(&self._key, <const uint8_t *> PyBytes_AS_STRING(data), -1 if key is None else PyBytes_GET_SIZE(data))
        if self._wants_value:
            data = b"" if value is None else value
            put(&self._value, <const uint8_t *> PyBytes_AS_STRING(data), -1 if value is None else PyBytes_GET_SIZE(data))
        if self._wants_type:
            (<int32_t *> self._types.data)[self.rows] = timestamp_type
        self._put_rest(offset, timestamp)
        if self._wants_headers:
            self._put_no_headers()
        self.rows += 1

    cdef int _ready(self, Py_ssize_t rows, Py_ssize_t size) noexcept nogil:
        """Reserve memory in every requested column for `more` rows with the given total of bytes."""
        cdef Py_ssize_t bytes_of_bits = (self.rows + rows + 7) // 8
        if self._wants_key and ready(&self._key, rows, size) < 0:
            return NO_MEMORY
        if self._wants_value and ready(&self._value, rows, size) < 0:
            return NO_MEMORY
        if self._wants_offset:
            self._offsets.size = 8 * self.rows
            if reserve(&self._offsets, 8 * rows) < 0:
                return NO_MEMORY
        if self._wants_timestamp:
            self._timestamps.size = 8 * self.rows
            if reserve(&self._timestamps, 8 * rows) < 0:
                return NO_MEMORY
        if self._wants_type:
            self._types.size = 4 * self.rows
            if reserve(&self._types, 4 * rows) < 0:
                return NO_MEMORY
        if self._wants_headers:
            self._header_ends.size = 4 * (self.rows + 1)
            if reserve(&self._header_ends, 4 * rows) < 0:
                return NO_MEMORY
            if self.rows == 0:
                (<int32_t *> self._header_ends.data)[0] = 0
            if bytes_of_bits > self._header_valid.size:
                if reserve(&self._header_valid, bytes_of_bits - self._header_valid.size) < 0:
                    return NO_MEMORY
                memset(
                    self._header_valid.data + self._header_valid.size, 0xFF, bytes_of_bits - self._header_valid.size
                )
                self._header_valid.size = bytes_of_bits
        return DONE

    cdef void _back_headers(self) noexcept nogil:
        cdef Py_ssize_t at = self.rows >> 3
        if self._header_valid.size > at:
            self._header_valid.data[at] |= <uint8_t> (0xFF << (self.rows & 7))
            memset(self._header_valid.data + at + 1, 0xFF, self._header_valid.size - at - 1)

    cdef inline void _put_rest(self, int64_t offset, int64_t timestamp) noexcept nogil:
        if self._wants_offset:
            (<int64_t *> self._offsets.data)[self.rows] = offset
        if self._wants_timestamp:
            (<int64_t *> self._timestamps.data)[self.rows] = timestamp

    cdef int _scan(self, Scan *scan) noexcept nogil:
        """Append rows of all records within bounds, up to the end or to an invalid record (`at` stays before it)."""
        cdef const uint8_t *at
        cdef const uint8_t *end
        cdef const uint8_t *key
        cdef const uint8_t *value
        cdef const uint8_t *headers
        cdef int32_t length, offset_delta, key_length, value_length
        cdef int64_t delta
        cdef long long offset, timestamp
        while scan.index < scan.count:
            at = read_varint(scan.at, scan.end, &length)
            if at == NULL or length < 1 or length > scan.end - at:
                return UNSOUND
            end = at + length
            at = read_varlong(at + 1, end, &delta)
            if at == NULL:
                return UNSOUND
            at = read_varint(at, end, &offset_delta)
            if at == NULL:
                return UNSOUND
            at = read_varint(at, end, &key_length)
            if at == NULL or key_length < -1 or key_length > end - at:
                return UNSOUND
            key = at
            if key_length > 0:
                at += key_length
            at = read_varint(at, end, &value_length)
            if at == NULL or value_length < -1 or value_length > end - at:
                return UNSOUND
            value = at
            if value_length > 0:
                at += value_length
            if at >= end:
                return UNSOUND
            headers = at
            if at[0] == 0:
                at += 1
            else:
                at = skip_headers(at, end)
            if at != end:
                return UNSOUND
            if add_overflows(scan.base_offset, offset_delta, &offset):
                return UNSOUND
            if scan.appended:
                timestamp = scan.append_time
            elif add_overflows(scan.base_timestamp, delta, &timestamp):
                return UNSOUND
            if scan.first <= offset < scan.behind:
                if self._wants_key:
                    put(&self._key, key, key_length, scan.end - key)
                if self._wants_value:
                    put(&self._value, value, value_length, scan.end - value)
                self._put_rest(offset, timestamp)
                if self._wants_headers:
                    if headers[0] == 0:
                        self._put_no_headers()
                    elif self._put_headers(headers, end) < 0:
                        return NO_MEMORY
                self.rows += 1
            scan.at = end
            scan.index += 1
        return DONE

    cdef inline void _put_no_headers(self) noexcept nogil:
        self._header_valid.data[self.rows >> 3] &= <uint8_t> ~(1 << (self.rows & 7))
        self._header_nulls += 1
        (<int32_t *> self._header_ends.data)[self.rows + 1] = <int32_t> self._names.count

    cdef int _put_headers(self, const uint8_t *at, const uint8_t *end) noexcept nogil:
        """Append the headers of one row, which `skip_headers` has checked."""
        cdef int32_t count = 0
        cdef int32_t length = 0
        cdef const uint8_t *name
        at = read_varint(at, end, &count)
        if count == 0:
            self._put_no_headers()
            return 0
        # At most three bytes for each byte of a name: a replacement character.
        if ready(&self._names, count, 3 * (end - at)) < 0 or ready(&self._contents, count, end - at) < 0:
            return -1
        while count:
            count -= 1
            at = read_varint(at, end, &length)
            name = at
            if is_ascii(name, length):
                put(&self._names, name, length)
            elif put_text(&self._names, name, length) < 0:
                return -1
            at = read_varint(at + length, end, &length)
            put(&self._contents, at, length)
            if length > 0:
                at += length
        (<int32_t *> self._header_ends.data)[self.rows + 1] = <int32_t> self._names.count
        return 0

    def take(self):
        """See columns.ColumnsBuffer.take."""
        import pyarrow as pa

        cdef dict arrays = {}
        if self._ready(0, 0) != DONE or ready(&self._names, 0, 0) < 0 or ready(&self._contents, 0, 0) < 0:
            raise MemoryError
        for name in self.names:
            kind = reference.arrow_type(name)
            if name == "key":
                arrays[name] = _binary(pa, kind, &self._key)
            elif name == "value":
                arrays[name] = _binary(pa, kind, &self._value)
            elif name == "offset":
                self._offsets.size = 8 * self.rows
                arrays[name] = pa.Array.from_buffers(kind, self.rows, [None, pa.py_buffer(block_of(&self._offsets))])
            elif name == "timestamp":
                self._timestamps.size = 8 * self.rows
                arrays[name] = pa.Array.from_buffers(
                    kind, self.rows, [None, pa.py_buffer(block_of(&self._timestamps))]
                )
            elif name == "timestampType":
                self._types.size = 4 * self.rows
                arrays[name] = pa.Array.from_buffers(kind, self.rows, [None, pa.py_buffer(block_of(&self._types))])
            else:
                arrays[name] = self._take_headers(pa, kind)
        self.rows = 0
        return arrays

    cdef object _take_headers(self, pa, kind):
        cdef Py_ssize_t count = self._names.count
        entry = kind.value_type
        pairs = pa.Array.from_buffers(
            entry,
            count,
            [None],
            children=[
                _binary(pa, entry.field("key").type, &self._names),
                _binary(pa, entry.field("value").type, &self._contents),
            ],
        )
        self._header_ends.size = 4 * (self.rows + 1)
        valid = pa.py_buffer(block_of(&self._header_valid))
        ends = pa.py_buffer(block_of(&self._header_ends))
        nulls, self._header_nulls = self._header_nulls, 0
        return pa.Array.from_buffers(kind, self.rows, [valid if nulls else None, ends], nulls, children=[pairs])


cdef object _binary(pa, kind, Binary *column):
    cdef Py_ssize_t count = column.count
    cdef Py_ssize_t nulls = column.nulls
    column.ends.size = 4 * (count + 1)
    valid = pa.py_buffer(block_of(&column.valid))
    buffers = [valid if nulls else None, pa.py_buffer(block_of(&column.ends)), pa.py_buffer(block_of(&column.data))]
    column.count = column.nulls = 0
    return pa.Array.from_buffers(kind, count, buffers, nulls)


cdef const uint8_t *skip_headers(const uint8_t *at, const uint8_t *end) noexcept nogil:
    cdef int32_t count, length
    at = read_varint(at, end, &count)
    if at == NULL or count < 0:
        return NULL
    while count:
        count -= 1
        at = read_varint(at, end, &length)
        if at == NULL or length < 0 or length > end - at:
            return NULL
        at = read_varint(at + length, end, &length)
        if at == NULL or length < -1 or length > end - at:
            return NULL
        if length > 0:
            at += length
    return at


cdef bint is_ascii(const uint8_t *data, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t at
    for at in range(size):
        if data[at] > 0x7F:
            return False
    return True


cdef int put_text(Binary *column, const uint8_t *data, Py_ssize_t size) noexcept with gil:
    """Return a name as text; bytes that are not UTF-8 become replacement characters."""
    cdef bytes text
    try:
        text = (<bytes> data[:size]).decode("utf-8", "replace").encode()
    except MemoryError:
        return -1
    put(column, <const uint8_t *> PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
    return 0


cdef int _ask_reference(bytes data, Scan *scan, Py_ssize_t at) except -1:
    """Raise the reference's error for the record at `at`, which the scan rejected."""
    append_time = scan.append_time if scan.appended else None
    try:
        record_reference.record_at(data, at, scan.base_offset, scan.base_timestamp, append_time)
    except (CorruptRecord, IndexError) as error:
        raise record_reference.unreadable(scan.index, scan.count, scan.base_offset, error) from error
    raise AssertionError(f"the compiled reader refuses the record at byte {at}, the reference does not")
