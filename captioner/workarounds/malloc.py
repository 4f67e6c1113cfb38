"""Memory settings of glibc, for training and for the service.

glibc returns the memory of large blocks to the system. Once it has freed one of up to 32 MB, it keeps blocks of up to
that size. Returned memory took 8 % of a training step, because the system clears the pages again. In a
service, kept memory grew slowly while the bytes in use did not, probably because small blocks lie between large ones.
"""

from __future__ import annotations

import ctypes

# Constants of glibc's malloc.h.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -3, -4, -8
LARGE = 2**20  # bytes of a block that the service returns when it is freed


def keep_memory() -> bool:
    """Let the process keep the memory of freed tensors for new ones. False where the C library has no mallopt."""
    return _set((M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, 2**31 - 1), (M_ARENA_MAX, 1))


def return_memory() -> bool:
    """Let the process return the memory of freed tensors, always. False where the C library has no mallopt."""
    return _set((M_MMAP_THRESHOLD, LARGE))


def _set(*options: tuple[int, int]) -> bool:
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library
        return False
    return all(mallopt(*option) for option in options)
