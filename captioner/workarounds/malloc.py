"""Memory settings of glibc, for decoding pictures, for the service and for training.

glibc returns the memory of large blocks to the system. Once it has freed one of up to 32 MB, it keeps blocks of up to
that size, in an arena for each thread. Kept blocks of other sizes add up: pictures that each stay within the memory
limit took several times as much together. In a service, kept memory grew slowly while the bytes in use did not,
probably because small blocks lie between large ones. Training is the exception: returned memory took 8 % of a step,
because the system clears the pages again. So a training process returns memory while it encodes pictures, and keeps
it from the first step on. `return_memory` then has no effect, because `keep_memory` switches off mmap, which it needs.
"""

from __future__ import annotations

import ctypes
import sys

# Constants of glibc's malloc.h.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -3, -4, -8
TENSORS = 2**20  # bytes of a block that the service returns when it is freed
PICTURES = 4 * 2**20  # of one that decoding returns: to return those of ordinary photos too costs time
_returned = sys.maxsize  # bytes of a block that this process returns


def use_one_arena() -> bool:
    """Let all threads take memory from one arena. To be called before there are threads that have others."""
    return _set((M_ARENA_MAX, 1))


def keep_memory() -> bool:
    """Let the process keep the memory of freed tensors for new ones. False where the C library has no mallopt."""
    return _set((M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, 2**31 - 1), (M_ARENA_MAX, 1))


def return_memory(size: int) -> bool:
    """Let the process return freed blocks of this size and more, also if a later call names a larger size.

    False where the C library has no mallopt.
    """
    global _returned
    _returned = min(_returned, size)
    return _set((M_MMAP_THRESHOLD, _returned))


def return_now() -> bool:
    """Return all freed memory to the system, of every size. False where the C library has no malloc_trim."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError, TypeError):  # another C library
        return False
    return True


def _set(*options: tuple[int, int]) -> bool:
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library
        return False
    return all(mallopt(*option) for option in options)
