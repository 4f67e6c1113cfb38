import numpy as np
import pytest

from captioner.metrics.rank_correlation import rank_correlation


@pytest.mark.parametrize(
    "one, other, expected",
    [
        ([1, 2, 3, 4], [10, 20, 30, 99], 1.0),
        ([1, 2, 3, 4], [4, 3, 2, 1], -1.0),
        # The example of Wikipedia's article on the coefficient: IQ and hours of TV.
        ([106, 100, 86, 101, 99, 103, 97, 113, 112, 110], [7, 27, 2, 50, 28, 29, 20, 12, 6, 17], -29 / 165),
        ([1, 1, 2], [1, 2, 3], 0.8660254),  # ties share a rank
    ],
)
def test_known_correlations(one, other, expected):
    assert rank_correlation(one, other) == pytest.approx(expected)


def test_a_flat_side_has_no_correlation():
    assert rank_correlation(np.ones((2, 2)), [1, 2, 3, 4]) is None
