"""CaptionBatch: a batch of rows in, the same rows with captions or errors out."""

from __future__ import annotations

import numpy as np
import pytest

from captioner import UsageError
from captioner.scale import CaptionBatch
from captioner.scale.rows import COLUMNS
from tests.scale.written_shards import NOISE, pictures


def objects(values: list[object]) -> np.ndarray:
    """As Ray Data gives columns of bytes."""
    array = np.empty(len(values), object)
    array[:] = values
    return array


@pytest.fixture(scope="module")
def caption_batch(model) -> CaptionBatch:
    return CaptionBatch(str(model), threads=1)


def test_rows_get_the_captions_of_their_pictures_and_keep_their_columns(caption_batch, captioner):
    files = pictures(5)
    batch = {"bytes": objects([*files]), "id": np.arange(5)}
    result = caption_batch(batch)
    assert list(result) == ["id", *COLUMNS[1:]]
    assert result["id"].tolist() == [0, 1, 2, 3, 4]
    truths = [captioner(data) for data in files]
    assert result["caption"] == [truth.text for truth in truths]
    assert result["words"] == [[word.text for word in truth.words] for truth in truths]
    assert result["score"] == pytest.approx([truth.score for truth in truths], abs=1e-5)
    assert result["error"] == [None] * 5


def test_bad_pictures_are_rows_with_errors(caption_batch):
    (good,) = pictures(1)
    result = caption_batch({"bytes": objects([NOISE, good, None, b"", {"bytes": good, "path": None}])})
    assert [caption is None for caption in result["caption"]] == [True, False, True, True, False]
    assert [error is None for error in result["error"]] == [False, True, False, False, True]
    assert np.isnan(result["score"][0])


def test_the_column_can_be_named_and_kept_and_an_empty_batch_is_one(model):
    caption_batch = CaptionBatch(str(model), column="image", keep_column=True, threads=1, beam=1)
    result = caption_batch({"image": objects([*pictures(2)])})
    assert list(result) == ["image", *COLUMNS[1:]]
    assert caption_batch({"image": objects([])})["caption"] == []
    with pytest.raises(UsageError, match="Columns: bytes"):
        caption_batch({"bytes": objects([])})


def test_wrong_options_are_refused_when_the_model_is_loaded(model):
    with pytest.raises(UsageError, match="beem"):
        CaptionBatch(str(model), beem=3)  # type: ignore[call-arg]
