"""CaptionBatch: captions for a pipeline of Ray Data."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from captioner.errors import UsageError
from captioner.scale.picture_tables import cell_picture
from captioner.scale.rows import COLUMNS, schema
from captioner.scale.samples import Sample
from captioner.scale.shard_captioning import ShardCaptioner, ShardSettings
from captioner.writers.parquet_writer import escape_name

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from captioner.options import SearchKeywords


class CaptionBatch:
    """Captions the pictures of a batch of rows. It is a callable class for `ray.data.Dataset.map_batches`.

    The model is loaded once per actor. Pictures come as bytes and are decoded here, with the limits and the EXIF
    orientation of every other command. A picture that cannot be read gives a row with an `error`; nothing is raised,
    so no block is lost.

    Examples:
        >>> import ray  # doctest: +SKIP
        >>> from captioner.scale import CaptionBatch
        >>> photos = ray.data.read_binary_files("s3://bucket/photos", include_paths=True)  # doctest: +SKIP
        >>> captions = photos.map_batches(  # doctest: +SKIP
        ...     CaptionBatch,
        ...     fn_constructor_kwargs={"model": "default", "beam": 3},
        ...     compute=ray.data.ActorPoolStrategy(size=8),
        ...     batch_size=256,
        ...     num_cpus=1,
        ... )
    """

    def __init__(
        self,
        model: str = "default",
        *,
        column: str = "bytes",
        keep_column: bool = False,
        threads: int | None = None,
        settings: ShardSettings | None = None,
        **options: Unpack[SearchKeywords],
    ) -> None:
        """Load a model.

        Args:
            model: Name of a model, or the folder of a bundle, on every node.
            column: The column with the pictures: bytes, paths, or Hugging Face's struct of both.
            keep_column: Keep the column with the pictures. By default, the result is without it.
            threads: Processors of an actor; as many as Ray gave it by default.
            settings: Backend, batch and limits, instead of `model`, `threads` and `options`.
            options: Fields of `SearchOptions`.
        """
        if settings is not None and (model != "default" or threads is not None or options):
            raise UsageError("settings has the model, the threads and the search options; give them there only")
        if settings is None:
            settings = ShardSettings(model=model, threads=threads or granted_cpus(), options=dict(options))
        self.column, self.keep_column = column, keep_column
        self._captioner = ShardCaptioner(settings)

    def __call__(self, batch: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
        """The batch with the columns caption, sentence, score, confidence, words, error, model, backend and version.

        They are arrays of pyarrow, with the same types in every batch.
        """
        import pyarrow

        if self.column not in batch:
            raise UsageError(f"there is no column {self.column!r}. Columns: {', '.join(batch)}.")
        cells = batch[self.column]
        samples = (
            Sample(f"row {number}", cell_picture(f"row {number}", cell, ".")) for number, cell in enumerate(cells, 1)
        )
        rows = [row for _, row in self._captioner.rows(samples) if row is not None]
        result: dict[str, Any] = {
            name: values for name, values in batch.items() if self.keep_column or name != self.column
        }
        types = schema()  # not that of the values: the column of a batch may be all null
        for row in rows:
            row["error"] = row["error"] and escape_name(row["error"])
        for name in COLUMNS[1:]:
            result[name] = pyarrow.array([row[name] for row in rows], types.field(name).type)
        return result


def granted_cpus() -> int | None:
    """The processors that Ray gave to this actor. None outside of Ray and in its driver: then all are used."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return None
    worker = getattr(ray.get_runtime_context(), "worker", None)
    if getattr(worker, "mode", None) != ray.WORKER_MODE:
        return None
    return max(1, int(ray.get_runtime_context().get_assigned_resources().get("CPU", 1)))
