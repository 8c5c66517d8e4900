# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Compiled version of routing.py.

Invariants: an index or a partition outside its bounds raises IndexError before anything is read or written there.
"""

from cpython cimport array
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE, PyList_New, PyList_SET_ITEM
from cpython.ref cimport Py_INCREF
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcpy

cdef extern from "Python.h":
    void PyObject_GC_UnTrack(object untracked)

cdef tuple NO_HEADERS = ()
cdef array.array SIZES = array.array("q")
cdef array.array INDEXES = array.array("i")


cdef inline long long length_of(object data) except -1:
    """Return the number of bytes, 0 for None. Raises TypeError for other types."""
    if data is None:
        return 0
    if not PyBytes_CheckExact(data):
        raise TypeError(f"expected bytes or None, not {type(data).__name__}")
    return PyBytes_GET_SIZE(data)


def first_other(list column):
    """See routing.first_other."""
    cdef Py_ssize_t at
    cdef object entry
    for at in range(PyList_GET_SIZE(column)):
        entry = <object> PyList_GET_ITEM(column, at)
        if entry is not None and not PyBytes_CheckExact(entry):
            return at
    return -1


def measure(list values, list keys, long long each):
    """See routing.measure."""
    cdef Py_ssize_t count = PyList_GET_SIZE(values)
    cdef array.array sizes = array.clone(SIZES, count, False)
    cdef long long *size = sizes.data.as_longlongs
    cdef Py_ssize_t at
    if keys is not None and PyList_GET_SIZE(keys) != count:
        raise ValueError(f"{PyList_GET_SIZE(keys)} keys and {count} values")
    for at in range(count):
        size[at] = each + length_of(<object> PyList_GET_ITEM(values, at))
    if keys is not None:
        for at in range(count):
            size[at] += length_of(<object> PyList_GET_ITEM(keys, at))
    return sizes


def fit(const long long[::1] sizes, Py_ssize_t at, Py_ssize_t end, long long room, long long memory, long long each):
    """See routing.fit."""
    cdef long long total = 0
    cdef long long size
    cdef Py_ssize_t index
    if at < 0 or end > sizes.shape[0]:
        raise IndexError(f"records {at} to {end} of {sizes.shape[0]}")
    for index in range(at, end):
        size = total + sizes[index]
        if size > room or size + each * (index + 1 - at) > memory:
            return index, total
        total = size
    return max(at, end), total


cdef inline uint32_t murmur2(const uint8_t *data, Py_ssize_t size) noexcept nogil:
    cdef uint32_t mix = 0x5BD1E995
    cdef uint32_t hashed = <uint32_t> 0x9747B28C ^ <uint32_t> size
    cdef uint32_t word
    cdef Py_ssize_t at = 0
    while at + 4 <= size:
        word = data[at] | <uint32_t> data[at + 1] << 8 | <uint32_t> data[at + 2] << 16 | <uint32_t> data[at + 3] << 24
        word = word * mix
        word = (word ^ word >> 24) * mix
        hashed = hashed * mix ^ word
        at += 4
    if at < size:
        if size - at > 2:
            hashed ^= <uint32_t> data[at + 2] << 16
        if size - at > 1:
            hashed ^= <uint32_t> data[at + 1] << 8
        hashed = (hashed ^ data[at]) * mix
    hashed = (hashed ^ hashed >> 13) * mix
    return hashed ^ hashed >> 15


def partition_for_key(bytes key not None, uint32_t partitions):
    """See partitioner.partition_for_key."""
    return (murmur2(<const uint8_t *> PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key)) & 0x7FFFFFFF) % partitions


def partitions_of(list keys, uint32_t partitions):
    """See routing.partitions_of."""
    cdef Py_ssize_t count = PyList_GET_SIZE(keys)
    cdef array.array targets = array.clone(INDEXES, count, False)
    cdef int *target = targets.data.as_ints
    cdef Py_ssize_t at
    cdef object key
    if partitions < 1:
        raise ValueError("a topic has at least one partition")
    for at in range(count):
        key = <object> PyList_GET_ITEM(keys, at)
        if key is None:
            target[at] = -1
        elif PyBytes_CheckExact(key):
            target[at] = <int> (
                (murmur2(<const uint8_t *> PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key)) & 0x7FFFFFFF) % partitions
            )
        else:
            raise TypeError(f"expected bytes or None, not {type(key).__name__}")
    return targets


def unassigned(const int[::1] targets, Py_ssize_t at, Py_ssize_t end):
    """See routing.unassigned."""
    cdef Py_ssize_t index
    cdef Py_ssize_t found = 0
    if at < 0 or end > targets.shape[0]:
        raise IndexError(f"records {at} to {end} of {targets.shape[0]}")
    for index in range(at, end):
        found += targets[index] == -1
    return found


def group(const int[::1] targets, Py_ssize_t at, Py_ssize_t end, Py_ssize_t partitions):
    """See routing.group."""
    cdef array.array counts_array = array.clone(SIZES, partitions + 1, True)
    cdef long long *counts = counts_array.data.as_longlongs
    cdef list groups = []
    cdef array.array found
    cdef Py_ssize_t index, partition
    cdef long long before = 0
    cdef long long count
    cdef array.array sorted_array
    cdef int *sorted_indexes
    if at < 0 or end > targets.shape[0]:
        raise IndexError(f"records {at} to {end} of {targets.shape[0]}")
    for index in range(at, end):
        if not 0 <= targets[index] < partitions:
            raise IndexError(f"partition {targets[index]} of {partitions}")
        counts[targets[index]] += 1
    for partition in range(partitions):  # from here on: where the next index of the partition goes
        count = counts[partition]
        counts[partition] = before
        before += count
    sorted_array = array.clone(INDEXES, before, False)
    sorted_indexes = sorted_array.data.as_ints
    for index in range(at, end):
        sorted_indexes[counts[targets[index]]] = <int> index
        counts[targets[index]] += 1
    before = 0
    for partition in range(partitions):
        count = counts[partition] - before
        if count > 0:
            found = array.clone(INDEXES, count, False)
            memcpy(found.data.as_ints, sorted_indexes + before, count * sizeof(int))
            groups.append((partition, found))
        before = counts[partition]
    return groups


def pick_sizes(const long long[::1] sizes, const int[::1] indexes):
    """See routing.pick_sizes."""
    cdef Py_ssize_t count = indexes.shape[0]
    cdef array.array picked = array.clone(SIZES, count, False)
    cdef long long *size = picked.data.as_longlongs
    cdef Py_ssize_t at
    for at in range(count):
        if not 0 <= indexes[at] < sizes.shape[0]:
            raise IndexError(f"entry {indexes[at]} of {sizes.shape[0]}")
        size[at] = sizes[indexes[at]]
    return picked


cdef inline object entry_of(list column, Py_ssize_t at, Py_ssize_t size):
    """Return an entry of a column that has `size` of them, None of a column that is None."""
    if column is None:
        return None
    if PyList_GET_SIZE(column) < size:
        raise IndexError(f"a column of {PyList_GET_SIZE(column)} entries for {size} records")
    return <object> PyList_GET_ITEM(column, at)


def waiting(records, list values, list keys, timestamps, list headers):
    """See routing.waiting."""
    cdef Py_ssize_t size = PyList_GET_SIZE(values)
    cdef bint is_range = type(records) is range
    cdef const int[::1] indexes
    cdef Py_ssize_t count, begin = 0, place, record
    cdef list times = None if isinstance(timestamps, int) else timestamps
    cdef list found
    cdef object timestamp, each_headers, key, value
    cdef tuple fields
    if is_range:
        if records.step != 1:
            raise ValueError("expected consecutive records")
        begin, count = records.start, max(0, records.stop - records.start)
        if count and (begin < 0 or begin + count > size):
            raise IndexError(f"records {begin} to {begin + count} of {size}")
    else:
        indexes = records
        count = indexes.shape[0]
    found = PyList_New(count)
    for place in range(count):
        record = begin + place if is_range else indexes[place]
        if not 0 <= record < size:
            raise IndexError(f"record {record} of {size}")
        key = entry_of(keys, record, size)
        value = <object> PyList_GET_ITEM(values, record)
        timestamp = timestamps if times is None else entry_of(times, record, size)
        each_headers = NO_HEADERS if headers is None else entry_of(headers, record, size)
        fields = (key, value, timestamp, each_headers)
        PyObject_GC_UnTrack(fields)  # bytes, a number and headers: they cannot be part of a reference cycle
        Py_INCREF(fields)
        PyList_SET_ITEM(found, place, fields)
    return found
