"""The shipped default model: its captions of the example photographs are right, and the README quotes them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from captioner import Caption, Captioner
from captioner.bundle.loading import load_bundle
from captioner.bundle.model_folders import find_model
from captioner.writers.lines import record

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.jpg"))
SALIENT = {
    "cat": {"cat", "kitten"},
    "coffee": {"cup", "coffee", "plate", "bowl"},
    "dog": {"dog", "woman", "girl", "person"},
    "horse": {"horse", "horses", "jockey"},
    "plane": {"plane", "airplane", "jet"},
    "surfer": {"surfboard", "surfing", "wave", "surfer"},
}


@pytest.fixture(scope="module")
def captions() -> dict[str, Caption]:
    captioner = Captioner.load("default", backend="onnx")
    return {path.stem: caption for path, caption in zip(EXAMPLES, captioner(EXAMPLES), strict=True)}


@pytest.mark.parametrize("name", SALIENT)
def test_the_caption_names_the_main_object(name: str, captions: dict[str, Caption]) -> None:
    words = {word.text for word in captions[name].words}
    assert words & SALIENT[name], captions[name].text


def test_the_readme_quotes_the_captions_word_for_word(captions: dict[str, Caption]) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    quoted = dict(re.findall(r"^\| `examples/(\w+)\.jpg` \| (.+?) \|$", readme, re.MULTILINE))
    assert quoted == {name: caption.sentence for name, caption in captions.items()}


@pytest.mark.parametrize("page", ["caption-photos.md", "serve.md"])
def test_a_page_shows_the_caption_that_a_user_gets(page: str, captions: dict[str, Caption]) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    (sample,) = (json.loads(block) for block in re.findall(r"```json\n(.+?)```", text, re.DOTALL) if "cat.jpg" in block)
    shown = sample["results"][0] | {"backend": sample["backend"]} if "results" in sample else sample
    written = record(shown["image"], captions["cat"])
    assert {name: shown[name] for name in written} == pytest.approx(written, abs=1e-3)


def test_attention_maps_sum_to_one_and_change_from_word_to_word(captions: dict[str, Caption]) -> None:
    for caption in captions.values():
        np.testing.assert_allclose(caption.alphas.sum((1, 2)), 1, atol=1e-4)
        assert np.abs(np.diff(caption.alphas, axis=0)).sum((1, 2)).mean() > 0.05


def test_onnx_and_torch_give_the_same_captions_and_maps(captions: dict[str, Caption]) -> None:
    torch_captions = Captioner.load("default", backend="torch", device="cpu")(EXAMPLES)
    for onnx_caption, torch_caption in zip(captions.values(), torch_captions, strict=True):
        assert onnx_caption.text == torch_caption.text
        np.testing.assert_allclose(onnx_caption.alphas, torch_caption.alphas, atol=1e-4)


@pytest.mark.parametrize("folder", sorted((ROOT / "weights").iterdir()), ids=lambda folder: folder.name)
def test_the_files_of_every_shipped_model_are_those_that_its_manifest_lists(folder: Path) -> None:
    assert load_bundle(folder).manifest.name == folder.name


def test_the_default_model_has_at_most_45_megabytes_and_all_models_120() -> None:
    folder = find_model("default")
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 45e6
    total = sum(path.stat().st_size for path in (ROOT / "weights").rglob("*") if path.is_file())
    assert total <= 120e6


def test_the_config_of_the_guide_to_fine_tuning_fits_the_default_model() -> None:
    yaml = pytest.importorskip("yaml")
    from captioner.train import config_file as config
    from captioner.train.setup import initial_encoder

    guide = (ROOT / "docs" / "train-your-photos.md").read_text(encoding="utf-8")
    first, second = re.findall(r"```yaml\n(.*?)```", guide, re.DOTALL)[:2]
    settings = config.parse({**yaml.safe_load(first), **yaml.safe_load(second)}, "docs/train-your-photos.md")
    assert settings.training.start_from == Path("default")
    training = settings.training.model_copy(update={"start_from": ROOT / "weights" / "default"})
    initial_encoder(settings.model_copy(update={"training": training}))
