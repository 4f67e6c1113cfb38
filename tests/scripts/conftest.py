"""Tests of scripts that train use the data set of the tests of training."""

from __future__ import annotations

from tests.train.conftest import one_thread, shapes

__all__ = ["one_thread", "shapes"]
