"""CaptionBatch: a batch of rows in, the same rows with captions or errors out."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from captioner import UsageError
from captioner.scale import CaptionBatch
from captioner.scale.caption_batch import granted_cpus
from captioner.scale.rows import COLUMNS, schema
from captioner.scale.shard_captioning import ShardSettings
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
    assert result["caption"].to_pylist() == [truth.text for truth in truths]
    assert result["words"].to_pylist() == [[word.text for word in truth.words] for truth in truths]
    assert result["score"].to_pylist() == pytest.approx([truth.score for truth in truths], abs=1e-5)
    assert result["error"].to_pylist() == [None] * 5
    assert result["backend"].to_pylist() == [truth.backend for truth in truths] == ["onnx"] * 5


def test_bad_pictures_are_rows_with_errors(caption_batch):
    (good,) = pictures(1)
    result = caption_batch({"bytes": objects([NOISE, good, None, b"", {"bytes": good, "path": None}])})
    bad = [True, False, True, True, False]
    assert [caption is None for caption in result["caption"].to_pylist()] == bad
    assert [error is not None for error in result["error"].to_pylist()] == bad
    assert [score is None for score in result["score"].to_pylist()] == bad


def test_batches_without_errors_and_of_errors_only_are_one_table_in_parquet(caption_batch, tmp_path):
    for name, files in (("clean", pictures(2)), ("bad", [NOISE, NOISE])):
        pyarrow.parquet.write_table(pyarrow.table(caption_batch({"bytes": objects([*files])})), tmp_path / name)
    clean, bad = (pyarrow.parquet.read_schema(tmp_path / name) for name in ("clean", "bad"))
    assert clean == bad == pyarrow.schema(list(schema())[1:])
    assert pyarrow.parquet.read_table(tmp_path)["caption"].null_count == 2


@pytest.mark.parametrize(("mode", "processors"), [(0, None), (1, 3), (2, None)])
def test_only_an_actor_has_granted_processors(mode, processors, monkeypatch):
    """As Ray has it: outside of its workers (mode 1), there are no assigned resources."""

    def assigned_resources() -> dict[str, float]:
        assert mode == 1
        return {"CPU": 3.0}

    context = SimpleNamespace(worker=SimpleNamespace(mode=mode), get_assigned_resources=assigned_resources)
    ray = SimpleNamespace(is_initialized=lambda: True, get_runtime_context=lambda: context, WORKER_MODE=1)
    monkeypatch.setitem(sys.modules, "ray", ray)
    assert granted_cpus() == processors


def test_the_column_can_be_named_and_kept_and_an_empty_batch_is_one(model):
    caption_batch = CaptionBatch(str(model), column="image", keep_column=True, threads=1, beam=1)
    result = caption_batch({"image": objects([*pictures(2)])})
    assert list(result) == ["image", *COLUMNS[1:]]
    assert caption_batch({"image": objects([])})["caption"].to_pylist() == []
    with pytest.raises(UsageError, match="Columns: bytes"):
        caption_batch({"bytes": objects([])})


def test_wrong_options_are_refused_when_the_model_is_loaded(model):
    with pytest.raises(UsageError, match="beem"):
        CaptionBatch(str(model), beem=3)  # type: ignore[call-arg]


@pytest.mark.parametrize("other", [{"beam": 3}, {"threads": 1}, {"model": "toy"}])
def test_settings_and_what_they_would_hide_are_refused_together(other, model):
    with pytest.raises(UsageError, match="give them there only"):
        CaptionBatch(settings=ShardSettings(model=str(model)), **other)
