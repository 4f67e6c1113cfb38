"""Memory settings of glibc for training.

glibc returns the memory of every large tensor to the system. At the next allocation the system clears the pages again,
which took 8 % of a training step.
"""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -4, -8  # constants of glibc's malloc.h


def keep_memory() -> bool:
    """Let the process keep the memory of freed tensors for new ones. False where the C library has no mallopt."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library
        return False
    return all(mallopt(*option) for option in ((M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, 2**31 - 1), (M_ARENA_MAX, 1)))
