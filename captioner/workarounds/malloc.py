"""How the C library hands out memory while training."""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -4, -8  # of glibc's malloc.h


def keep_memory() -> bool:
    """Let freed tensors' memory be used again in place of going back to the system; False where there is no mallopt.

    glibc maps every large tensor anew and the system clears its pages first, which took 8 % of a step.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library
        return False
    return all(mallopt(*option) for option in ((M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, 2**31 - 1), (M_ARENA_MAX, 1)))
