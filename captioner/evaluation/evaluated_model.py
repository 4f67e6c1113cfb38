"""The model to evaluate: a bundle, run by onnxruntime or torch, or the best weights of a training run, run by torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from captioner.captioning import Captioner
from captioner.errors import UsageError
from captioner.installation import install_command
from captioner.options import BackendName
from captioner.train.run_folder import RunFolder


@dataclass(frozen=True)
class EvaluatedModel:
    """A loaded model and its name in the report."""

    name: str
    attention: str  # soft or hard
    captioner: Captioner


def load_model(
    model: str | Path,
    *,
    backend: BackendName = "auto",
    device: str | None = None,
    threads: int | None = None,
) -> EvaluatedModel:
    """Load a bundle by name or folder, or a training run by folder."""
    path = Path(model).expanduser()
    if RunFolder(path).is_run():
        if backend in ("onnx", "int8"):
            raise UsageError(
                f"{path} is a training run, which only torch can run; for onnxruntime, export it to a bundle first"
            )
        return _load_run(path, device, threads)
    captioner = Captioner.load(model, backend=backend, device=device, threads=threads)
    assert captioner.manifest is not None
    return EvaluatedModel(captioner.manifest.name, captioner.manifest.attention, captioner)


def _load_run(folder: Path, device: str | None, threads: int | None) -> EvaluatedModel:
    try:
        import torch

        from captioner.inference.torch_backend import TorchBackend
        from captioner.model.device import usable
        from captioner.train.loaded_run import load_best
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{folder} is a training run, which needs the package {error.name!r}: {install_command('train')}"
        ) from None
    best = load_best(folder)
    if threads:
        torch.set_num_threads(threads)
    captioner = Captioner(TorchBackend(best.network, best.vocabulary, usable(device)), best.config.decoding)
    return EvaluatedModel(best.config.name, "hard" if best.network.decoder.hard else "soft", captioner)
