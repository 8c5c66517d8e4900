# Compiled accesses to mapped files that convert SIGBUS to OSError. guard.py describes them and the pure-Python
# fallback.
#
# The kernel sends SIGBUS if a page of a mapping cannot be read from the disk, lies beyond the end of the file, or has
# no free space. The handler leaves an access of this module by siglongjmp. This is safe: the accesses are plain loads,
# stores and memcpy, and hold the interpreter lock and no other lock. Any other SIGBUS goes to the handler that was
# installed before. SA_NODEFER: the signal is not blocked after the jump.

cdef extern from *:
    """
    #include <setjmp.h>
    #include <signal.h>
    #include <stdint.h>
    #include <string.h>

    static __thread sigjmp_buf tl_resume;
    static __thread volatile sig_atomic_t tl_guarded;
    static struct sigaction tl_before;

    static void tl_on_sigbus(int number, siginfo_t *info, void *context) {
        (void)context;
        if (tl_guarded) {
            tl_guarded = 0;
            siglongjmp(tl_resume, 1);
        }
        sigaction(SIGBUS, &tl_before, NULL);
        if (info->si_code <= 0)
            raise(number);  /* sent by a process; an access faults again by itself */
    }

    static int tl_install(void) {
        struct sigaction action;
        memset(&action, 0, sizeof action);
        action.sa_sigaction = tl_on_sigbus;
        action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
        sigemptyset(&action.sa_mask);
        return sigaction(SIGBUS, &action, &tl_before);
    }

    static int tl_copy(char *to, const char *from, size_t size) {
        if (sigsetjmp(tl_resume, 0))
            return -1;
        tl_guarded = 1;
        memcpy(to, from, size);
        __asm__ volatile("" ::: "memory");
        tl_guarded = 0;
        return 0;
    }

    static inline int64_t tl_field(const unsigned char *at, int wide) {
        uint64_t value = 0;
        int i;
        for (i = 0; i < wide; i++)
            value = value << 8 | at[i];
        return wide == 4 ? (int32_t)(uint32_t)value : (int64_t)value;
    }

    static int64_t tl_search(const unsigned char *data, int64_t entries, int64_t warm, int size, int wide,
                             int64_t target) {
        int64_t low, high, middle;
        if (sigsetjmp(tl_resume, 0))
            return -2;
        tl_guarded = 1;
        low = entries - 1 - warm > 0 ? entries - 1 - warm : 0;
        high = entries - 1;
        if (tl_field(data + low * size, wide) > target) {
            high = low;
            low = 0;
            if (tl_field(data, wide) > target)
                high = low = -1;
        }
        while (low < high) {
            middle = (low + high + 1) / 2;
            if (tl_field(data + middle * size, wide) > target)
                high = middle - 1;
            else
                low = middle;
        }
        __asm__ volatile("" ::: "memory");
        tl_guarded = 0;
        return low;
    }
    """
    int tl_install()
    int tl_copy(char *to, const char *origin, size_t size)
    long long tl_search(const unsigned char *data, long long entries, long long warm, int size, int wide,
                        long long target)

from errno import EIO

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize

if tl_install():
    raise ImportError("SIGBUS cannot be handled here")


def load(buffer, Py_ssize_t position, Py_ssize_t size):
    cdef Py_buffer view
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if position < 0 or size < 0 or position + size > view.len:
            raise IndexError(f"bytes {position} to {position + size} of {view.len}")
        found = PyBytes_FromStringAndSize(NULL, size)
        if tl_copy(PyBytes_AS_STRING(found), <const char *>view.buf + position, size):
            raise _unreadable(position)
        return found
    finally:
        PyBuffer_Release(&view)


def store(buffer, Py_ssize_t position, bytes data):
    cdef Py_buffer view
    cdef Py_ssize_t size = len(data)
    PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
    try:
        if position < 0 or position + size > view.len:
            raise IndexError(f"bytes {position} to {position + size} of {view.len}")
        if tl_copy(<char *>view.buf + position, PyBytes_AS_STRING(data), size):
            raise _unreadable(position)
    finally:
        PyBuffer_Release(&view)


def search(buffer, Py_ssize_t entries, Py_ssize_t warm, int size, int at, int wide, long long target):
    cdef Py_buffer view
    cdef long long slot
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if entries < 0 or at < 0 or at + wide > size or entries * size > view.len or wide not in (4, 8):
            raise IndexError(f"{entries} entries of {size} bytes in {view.len}")
        if entries == 0:
            return -1
        slot = tl_search(<const unsigned char *>view.buf + at, entries, warm, size, wide, target)
        if slot < -1:
            raise _unreadable(0)
        return slot
    finally:
        PyBuffer_Release(&view)


def _unreadable(position):
    return OSError(EIO, f"byte {position} or a later byte cannot be accessed through the mapping (SIGBUS)")
