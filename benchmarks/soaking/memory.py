"""Measures the memory that a process uses, which differs from the memory that it holds. Needs glibc 2.33.

Used memory is what Python's allocator and the C allocator have given out and not got back. Held memory is larger, and
grows for minutes even if used memory does not: a page returns to the system only when it is completely free, and
long-lived objects spread over more and more pages. So used memory shows a leak. Held memory is reported for comparison.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from pathlib import Path

_C = ctypes.CDLL(None)
_OF_PYTHON = re.compile(rb"bytes in allocated blocks *= *([\d,]+)")


class _Mallinfo(ctypes.Structure):
    """`struct mallinfo2`: in all arenas, `uordblks` are the bytes given out, and `hblkhd` those mapped one by one."""

    _names = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
    _fields_ = tuple((name, ctypes.c_size_t) for name in _names)


_C.mallinfo2.restype = _Mallinfo


def held() -> int:
    """Return the resident memory of the process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def in_use() -> int:
    """Return the bytes that the allocators of Python and of C have allocated."""
    info = _C.mallinfo2()
    return _in_use_of_python() + int(info.uordblks) + int(info.hblkhd)


def give_back() -> None:
    """Let the C allocator return free memory to the system."""
    _C.malloc_trim(0)


def _in_use_of_python() -> int:
    """Return the allocated bytes from Python's report, which it writes to the standard error of C."""
    sys.stderr.flush()
    kept, told = os.dup(2), os.memfd_create("allocator")
    try:
        os.dup2(told, 2)
        sys._debugmallocstats()
        os.dup2(kept, 2)
        os.lseek(told, 0, os.SEEK_SET)
        with os.fdopen(told, "rb", closefd=False) as file:
            found = _OF_PYTHON.search(file.read())
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(told)
    return int(found[1].replace(b",", b"")) if found else 0  # with PYTHONMALLOC=malloc there is but that of C
