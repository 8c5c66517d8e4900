# cython: boundscheck=False, wraparound=False, initializedcheck=False
"""Compiled versions of record.decode_records, record.located_records and record_check.check_records: read and check the
records of a v2 batch.

Invariants: no byte outside the buffer is read; everything that the reference accepts is accepted, with the same result.
The first record that is not accepted is passed to the reference, which raises the error.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.object cimport PyObject_RichCompare, PyTypeObject
from cpython.ref cimport Py_INCREF
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t

from tidelog.records.v2._varints cimport read_varint, read_varlong

from tidelog.records.v2 import record as reference
from tidelog.records.v2 import record_check as check_reference
from tidelog.errors import CorruptRecord

cdef extern from *:
    """
    static inline int add_overflows(long long a, long long b, long long *sum) {
        return __builtin_add_overflow(a, b, sum);
    }
    """
    bint add_overflows(long long a, long long b, long long *sum) noexcept nogil

cdef extern from *:
    """
    static inline PyObject *new_tuple(PyTypeObject *kind, Py_ssize_t size) {
        return kind->tp_alloc(kind, size);
    }
    """
    object new_tuple(PyTypeObject *kind, Py_ssize_t size)

cdef extern from "Python.h":
    void PyObject_GC_UnTrack(object untracked)
    void PyTuple_SET_ITEM(object filled, Py_ssize_t at, object item)

cdef object Record = reference.Record
cdef tuple NO_HEADERS = ()

cdef Py_ssize_t RELEASE_BYTES = 1 << 18
"""From this size on a check releases the GIL; for smaller data, reacquiring it can cost more than the check."""


@cython.final
@cython.no_gc
@cython.freelist(512)
@cython.collection_type("sequence")
cdef class FastRecord:
    """A `Record` created by compiled code: it behaves like one in `isinstance`, comparison, unpacking, repr and pickle.

    Only the reader creates it, from bytes and text, so it cannot be part of a reference cycle and the garbage
    collector ignores it.
    """

    cdef readonly int64_t offset
    cdef readonly int64_t timestamp
    cdef readonly bytes key
    cdef readonly bytes value
    cdef readonly tuple headers

    def __init__(self):
        raise TypeError("a FastRecord is made by reading a batch: make a Record")

    cdef tuple fields(self):
        return (self.offset, self.timestamp, self.key, self.value, self.headers)

    @property
    def __class__(self):
        return Record

    def __reduce__(self):
        return Record, self.fields()

    def __repr__(self):
        return repr(Record(*self.fields()))

    def __hash__(self):
        return hash(self.fields())

    def __richcmp__(self, other, int how):
        if type(other) is FastRecord:
            return PyObject_RichCompare((<FastRecord> self).fields(), (<FastRecord> other).fields(), how)
        if isinstance(other, tuple):
            return PyObject_RichCompare((<FastRecord> self).fields(), other, how)
        return NotImplemented

    def __len__(self):
        return 5

    def __iter__(self):
        return iter(self.fields())

    def __getitem__(self, index):
        return self.fields()[index]

    def __contains__(self, item):
        return item in self.fields()

    def __add__(self, other):
        return self.fields() + other

    def __radd__(self, other):
        return other + self.fields()

    def __mul__(self, times):
        return self.fields() * times

    def __rmul__(self, times):
        return self.fields() * times

    def __getattr__(self, name):
        return getattr(Record(*self.fields()), name)


cdef inline FastRecord _new_record():
    return FastRecord.__new__(FastRecord)


cdef class RecordReader:
    """Iterator over the records in the uncompressed bytes of a batch; see record.decode_records."""

    cdef Py_buffer _view
    cdef bint _held
    cdef object _data
    cdef const uint8_t *_start
    cdef const uint8_t *_at
    cdef const uint8_t *_end
    cdef int64_t _base_offset
    cdef int64_t _base_timestamp
    cdef int64_t _append_time
    cdef object _append_time_given
    cdef Py_ssize_t _index
    cdef Py_ssize_t _count
    # The record that `_parse` has read.
    cdef const uint8_t *_key
    cdef const uint8_t *_value
    cdef const uint8_t *_behind
    cdef int32_t _key_length
    cdef int32_t _value_length
    cdef long long _offset
    cdef long long _timestamp
    cdef tuple _headers

    def __cinit__(self, data, Py_ssize_t count, int64_t base_offset, int64_t base_timestamp, append_time=None):
        self._held = False
        self._append_time_given = append_time
        self._append_time = base_timestamp if append_time is None else append_time
        PyObject_GetBuffer(data, &self._view, PyBUF_SIMPLE)
        self._held = True
        self._data = data
        self._start = self._at = <const uint8_t *> self._view.buf
        self._end = self._start + self._view.len
        self._base_offset, self._base_timestamp = base_offset, base_timestamp
        self._index, self._count = 0, count

    def __dealloc__(self):
        if self._held:
            PyBuffer_Release(&self._view)

    cdef int _finish(self) except -1:
        """Release the buffer. Raises CorruptRecord for bytes after the last record."""
        cdef Py_ssize_t left
        if not self._held:
            return 0
        left = self._end - self._at
        self._let_go()
        if left:
            raise reference.left_over(left, self._count, self._base_offset)
        return 0

    cdef void _let_go(self):
        if self._held:
            self._held = False
            self._at = self._end = self._start = NULL
            self._index = self._count
            PyBuffer_Release(&self._view)
            self._data = None

    def __iter__(self):
        return self

    def __next__(self):
        cdef FastRecord record
        if self._index >= self._count:
            self._finish()
            raise StopIteration
        record = self._read()
        if record is None:
            return self._ask_reference()
        self._index += 1
        return record

    def read_all(self):
        """Return the remaining records as a list, faster than by `next`."""
        cdef list records
        cdef FastRecord record
        cdef Py_ssize_t left = max(0, self._count - self._index)
        cdef Py_ssize_t done = 0
        # A record has at least 7 bytes: an impossible count must not allocate memory before it is detected.
        if left > (self._end - self._at) // 7:
            return list(self)
        records = PyList_New(left)
        while done < left:
            record = self._read()
            if record is None:
                judged = self._ask_reference()
                Py_INCREF(judged)
                PyList_SET_ITEM(records, done, judged)
            else:
                self._index += 1
                Py_INCREF(record)
                PyList_SET_ITEM(records, done, record)
            done += 1
        self._finish()
        return records

    def __length_hint__(self):
        return max(0, min(self._count - self._index, (self._end - self._at) // 7 + 1)) if self._held else 0

    def read_located(self, int64_t first, kind, topic, partition, timestamp_type, leader_epoch):
        """Return the remaining records from offset `first` on; see record.located_records."""
        cdef list records
        cdef object judged
        cdef object timestamp = None
        cdef long long known = -1  # in a record: no timestamp
        if kind.__base__ is not tuple or kind.__dictoffset__:
            raise TypeError(f"{kind.__name__} must be a NamedTuple: its instances are filled here")
        records = []
        while self._index < self._count:
            if self._parse():
                if self._offset >= first:
                    if known != self._timestamp:
                        known = self._timestamp
                        timestamp = None if known == -1 else known
                    records.append(self._located(kind, topic, partition, timestamp, timestamp_type, leader_epoch))
                self._index += 1
                self._at = self._behind
            else:
                judged = self._ask_reference()
                if judged.offset >= first:
                    records.append(reference.located(kind, topic, partition, judged, timestamp_type, leader_epoch))
        self._finish()
        return records

    cdef object _located(self, kind, topic, partition, timestamp, timestamp_type, leader_epoch):
        """Return the parsed record as a tuple of the class `kind`. Its fields are numbers, bytes and text, which cannot
        be part of a reference cycle: the garbage collector ignores it."""
        cdef object located = new_tuple(<PyTypeObject *> kind, 9)
        cdef object field
        PyObject_GC_UnTrack(located)
        Py_INCREF(topic)
        PyTuple_SET_ITEM(located, 0, topic)
        Py_INCREF(partition)
        PyTuple_SET_ITEM(located, 1, partition)
        field = self._offset
        Py_INCREF(field)
        PyTuple_SET_ITEM(located, 2, field)
        Py_INCREF(timestamp)
        PyTuple_SET_ITEM(located, 3, timestamp)
        field = _bytes_or_none(self._key, self._key_length)
        Py_INCREF(field)
        PyTuple_SET_ITEM(located, 4, field)
        field = _bytes_or_none(self._value, self._value_length)
        Py_INCREF(field)
        PyTuple_SET_ITEM(located, 5, field)
        Py_INCREF(self._headers)
        PyTuple_SET_ITEM(located, 6, self._headers)
        Py_INCREF(timestamp_type)
        PyTuple_SET_ITEM(located, 7, timestamp_type)
        Py_INCREF(leader_epoch)
        PyTuple_SET_ITEM(located, 8, leader_epoch)
        return located

    cdef FastRecord _read(self):
        """Return the record at `_at`, or None if the reference must decide; `_at` moves only over a valid record."""
        cdef FastRecord record
        if not self._parse():
            return None
        record = _new_record()
        record.offset = self._offset
        record.timestamp = self._timestamp
        record.key = _bytes_or_none(self._key, self._key_length)
        record.value = _bytes_or_none(self._value, self._value_length)
        record.headers = self._headers
        self._at = self._behind
        return record

    cdef bint _parse(self) except -1:
        """Read the fields of the record at `_at`, which ends at `_behind`. Returns False if the reference must
        decide."""
        cdef const uint8_t *at = self._at
        cdef const uint8_t *end
        cdef int32_t length, offset_delta
        cdef int64_t delta
        at = read_varint(at, self._end, &length)
        if at == NULL or length < 1 or length > self._end - at:
            return False
        end = at + length
        at = read_varlong(at + 1, end, &delta)
        if at == NULL:
            return False
        at = read_varint(at, end, &offset_delta)
        if at == NULL:
            return False
        at = read_varint(at, end, &self._key_length)
        if at == NULL or self._key_length < -1 or self._key_length > end - at:
            return False
        self._key = at
        if self._key_length > 0:
            at += self._key_length
        at = read_varint(at, end, &self._value_length)
        if at == NULL or self._value_length < -1 or self._value_length > end - at:
            return False
        self._value = at
        if self._value_length > 0:
            at += self._value_length
        if at >= end:
            return False
        if at[0] == 0:
            if at + 1 != end:
                return False
            self._headers = NO_HEADERS
        else:
            self._headers = _read_headers(at, end)
            if self._headers is None:
                return False
        if add_overflows(self._base_offset, offset_delta, &self._offset):
            return False
        if self._append_time_given is not None:
            self._timestamp = self._append_time
        elif add_overflows(self._base_timestamp, delta, &self._timestamp):
            return False
        self._behind = end
        return True

    cdef object _ask_reference(self):
        """Let the reference read the record at `_at`; nearly always it raises the error."""
        cdef bytes data = bytes(self._data)
        cdef Py_ssize_t at = self._at - self._start
        try:
            record, at = reference.record_at(
                data, at, self._base_offset, self._base_timestamp, self._append_time_given
            )
        except (CorruptRecord, IndexError) as error:
            index, count, base_offset = self._index, self._count, self._base_offset
            self._let_go()
            raise reference.unreadable(index, count, base_offset, error) from error
        self._at = self._start + at
        self._index += 1
        return record


cdef inline bytes _bytes_or_none(const uint8_t *data, int32_t length):
    return None if length < 0 else PyBytes_FromStringAndSize(<const char *> data, length)


cdef tuple _read_headers(const uint8_t *at, const uint8_t *end):
    """Return the headers whose count is at `at` and that must end at `end`, or None."""
    cdef int32_t count, length
    cdef list headers = []
    cdef str name
    cdef bytes value
    at = read_varint(at, end, &count)
    if at == NULL or count < 0:
        return None
    while count:
        count -= 1
        at = read_varint(at, end, &length)
        if at == NULL or length < 0 or length > end - at:
            return None
        name = PyUnicode_DecodeUTF8(<char *> at, length, "surrogateescape")
        at = read_varint(at + length, end, &length)
        if at == NULL or length < -1 or length > end - at:
            return None
        value = None
        if length >= 0:
            value = PyBytes_FromStringAndSize(<const char *> at, length)
            at += length
        headers.append((name, value))
    return tuple(headers) if at == end else None


cdef struct Scan:
    # Parameters and progress of a check.
    const uint8_t *at
    const uint8_t *end
    int64_t base_offset
    int64_t base_timestamp
    int64_t last_offset_delta
    int64_t timestamp_min
    int64_t timestamp_max
    bint key_required
    bint consecutive
    Py_ssize_t index
    Py_ssize_t count
    int64_t expected
    bint in_sequence
    Py_ssize_t with_headers
    long long max_timestamp
    Py_ssize_t max_index
    int found          # rules that the record before `at` violates: bit 0 offset, 1 no key, 2 timestamp
    int64_t offset_delta
    long long timestamp


cdef enum:
    DONE, UNSOUND, PROBLEM


cdef const uint8_t *_skip_headers(const uint8_t *at, const uint8_t *end) noexcept nogil:
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


cdef int _scan(Scan *scan) noexcept nogil:
    """Continue to the end, to an invalid record (`at` stays before it), or past a record that violates a rule."""
    cdef const uint8_t *at
    cdef const uint8_t *end
    cdef int32_t length, offset_delta, key_length
    cdef int64_t delta
    cdef long long offset, timestamp
    cdef bint has_headers
    cdef int found
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
        if key_length > 0:
            at += key_length
        at = read_varint(at, end, &length)
        if at == NULL or length < -1 or length > end - at:
            return UNSOUND
        if length > 0:
            at += length
        if at >= end:
            return UNSOUND
        has_headers = at[0] != 0
        if has_headers:
            at = _skip_headers(at, end)
        else:
            at += 1
        if at != end:
            return UNSOUND
        if add_overflows(scan.base_timestamp, delta, &timestamp):
            return UNSOUND
        if add_overflows(scan.base_offset, offset_delta, &offset):
            return UNSOUND
        found = 0
        scan.with_headers += has_headers
        if offset_delta != scan.expected:
            scan.in_sequence = False
            if scan.consecutive or not scan.expected <= offset_delta <= scan.last_offset_delta:
                found = 1
        scan.expected = <int64_t> offset_delta + 1
        if key_length < 0 and scan.key_required:
            found |= 2
        if timestamp != -1 and not scan.timestamp_min <= timestamp <= scan.timestamp_max:
            found |= 4
        if timestamp > scan.max_timestamp:
            scan.max_timestamp, scan.max_index = timestamp, scan.index
        scan.at = end
        scan.index += 1
        if found:
            scan.found, scan.offset_delta, scan.timestamp = found, offset_delta, timestamp
            return PROBLEM
    return DONE


cdef int64_t _within(value):
    """Return a bound as 64 bits; larger bounds have no effect."""
    return max(INT64_MIN, min(INT64_MAX, value))


def check_records(
    data,
    Py_ssize_t count,
    *,
    int64_t base_offset,
    int64_t last_offset_delta,
    int64_t base_timestamp,
    rules,
):
    """See record_check.check_records."""
    cdef Py_buffer view
    cdef Scan scan
    cdef const uint8_t *start
    cdef int state
    cdef Py_ssize_t left
    cdef list problems = []
    scan.key_required, timestamp_min, timestamp_max, scan.consecutive = rules
    scan.timestamp_min, scan.timestamp_max = _within(timestamp_min), _within(timestamp_max)
    scan.base_offset, scan.base_timestamp, scan.last_offset_delta = base_offset, base_timestamp, last_offset_delta
    scan.index, scan.count, scan.expected, scan.in_sequence = 0, count, 0, True
    scan.with_headers, scan.max_timestamp, scan.max_index = 0, -1, -1
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        start = scan.at = <const uint8_t *> view.buf
        scan.end = start + view.len
        while True:
            if scan.end - scan.at >= RELEASE_BYTES:
                with nogil:
                    state = _scan(&scan)
            else:
                state = _scan(&scan)
            if state == DONE:
                break
            if state == PROBLEM:
                _note(problems, &scan)
            else:
                _ask_reference(bytes(data), &scan, scan.at - start)
        left = scan.end - scan.at
    finally:
        PyBuffer_Release(&view)
    if left:
        raise reference.left_over(left, count, base_offset)
    return check_reference.RecordFacts(
        count, scan.max_timestamp, scan.max_index, scan.in_sequence, scan.with_headers, tuple(problems)
    )


cdef int _note(list problems, Scan *scan) except -1:
    cdef Py_ssize_t index = scan.index - 1
    if scan.found & 1:
        check_reference.note(problems, index, check_reference.ProblemKind.OFFSET, scan.offset_delta)
    if scan.found & 2:
        check_reference.note(problems, index, check_reference.ProblemKind.NO_KEY)
    if scan.found & 4:
        check_reference.note(problems, index, check_reference.ProblemKind.TIMESTAMP, scan.timestamp)
    return 0


cdef int _ask_reference(bytes data, Scan *scan, Py_ssize_t at) except -1:
    """Raise the reference's error for the record at `at`, which the scan rejected."""
    try:
        check_reference.measure_at(data, at, scan.base_offset, scan.base_timestamp)
    except (CorruptRecord, IndexError) as error:
        raise reference.unreadable(scan.index, scan.count, scan.base_offset, error) from error
    raise AssertionError(f"the compiled check refuses the record at byte {at}, the reference does not")


decode_records = RecordReader


def record_list(data, Py_ssize_t count, int64_t base_offset, int64_t base_timestamp, append_time=None):
    """Return all records in the uncompressed bytes of a batch."""
    return RecordReader(data, count, base_offset, base_timestamp, append_time).read_all()


def located_records(
    data,
    Py_ssize_t count,
    int64_t base_offset,
    int64_t base_timestamp,
    append_time,
    int64_t first,
    kind,
    topic,
    partition,
    timestamp_type,
    leader_epoch,
):
    """See record.located_records."""
    return RecordReader(data, count, base_offset, base_timestamp, append_time).read_located(
        first, kind, topic, partition, timestamp_type, leader_epoch
    )
