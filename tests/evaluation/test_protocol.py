"""The evaluation protocol, compared with the same steps done one by one by the public functions."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from captioner.data.caption_set import Box
from captioner.errors import CaptionerError, UsageError
from captioner.evaluation import protocol, tables
from captioner.evaluation.annotation_sources import FeatureCache, PictureFiles
from captioner.evaluation.evaluated_model import EvaluatedModel, load_model
from captioner.evaluation.evaluation_set import read_evaluation_set
from captioner.evaluation.grounding import grounded_nouns, grounding
from captioner.evaluation.protocol import Evaluation
from captioner.images.frame import Frame
from captioner.inference.search import SearchOptions
from captioner.metrics.text_scores import score
from tests.data.caption_files import coco, write
from tests.evaluation.handmade_maps import LEFT, caption, word
from tests.tiny_bundle import SIDE, write_model

REFERENCES = {
    7: ["a cat on the mat", "the cat sleeps on a very soft old mat in the house"],
    3: ["a dog runs", "dog"],
    5: ["a dog and a cat", "the cat", "two zebras"],
    9: ["a mat"],
    4: ["the dog sleeps on the mat", "a dog sleeps"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five pictures of 2 x 2 blocks, their captions, and boxes."""
    root = tmp_path_factory.mktemp("tiny")
    random = np.random.default_rng(0)
    for image in REFERENCES:
        block = random.integers(0, 256, (2, 2, 3), np.uint8).repeat(SIDE, 0).repeat(SIDE, 1)
        (root / "images").mkdir(exist_ok=True)
        Image.fromarray(block).save(root / "images" / f"{image:012d}.png")
    write(root / "captions_val.json", coco(REFERENCES, "{:012d}.png"))
    write(root / "captions_train.json", coco({100: ["a cat on the mat"], 101: ["something else"]}, "{:012d}.png"))
    objects = [
        {"id": 1, "image_id": 7, "category_id": 1, "bbox": [0, 0, SIDE, SIDE], "area": SIDE * SIDE, "iscrowd": 0},
        {"id": 2, "image_id": 3, "category_id": 2, "bbox": [SIDE, 0, SIDE, SIDE], "area": SIDE * SIDE, "iscrowd": 0},
    ]
    write(
        root / "instances_val.json",
        {
            "images": [
                {"id": image, "file_name": f"{image:012d}.png", "width": 2 * SIDE, "height": 2 * SIDE}
                for image in REFERENCES
            ],
            "annotations": objects,
            "categories": [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}],
        },
    )
    return root


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "toy").folder


@pytest.fixture(scope="module")
def model(bundle: Path) -> EvaluatedModel:
    return load_model(bundle)


def evaluate(model: EvaluatedModel, folder: Path, **changes: object) -> Evaluation:
    asked = {k: changes.pop(k) for k in ("limit", "offset", "boxes", "train_captions", "allow_missing") if k in changes}
    evaluation_set = read_evaluation_set(folder, "val", **asked)  # type: ignore[arg-type]
    source = PictureFiles(model.captioner.backend, evaluation_set.captions.items)
    return protocol.evaluate(model, evaluation_set, source, model.captioner.options(), **changes)  # type: ignore[arg-type]


def test_captions_equal_those_of_the_captioner_in_the_order_of_the_split(model, folder) -> None:
    evaluation = evaluate(model, folder)
    assert [item.id for item in evaluation.items] == list(REFERENCES)
    expected = [model.captioner(item.path).text for item in evaluation.items]
    assert [caption.text for caption in evaluation.captions] == expected
    assert [(entry["image_id"], entry["caption"]) for entry in tables.results(evaluation)] == list(
        zip(REFERENCES, expected, strict=True)
    )


def test_scores_are_computed_against_the_raw_references(model, folder) -> None:
    evaluation = evaluate(model, folder)
    results = {str(item.id): caption.text for item, caption in zip(evaluation.items, evaluation.captions, strict=True)}
    expected = score(results, {str(image): texts for image, texts in REFERENCES.items()})
    assert evaluation.scores.values == expected.values


def test_perplexity_equals_that_of_each_reference_forced_alone(model, folder) -> None:
    evaluation = evaluate(model, folder)
    log_probability, words = 0.0, 0
    for item in evaluation.items:
        for text in item.captions:
            forced = model.captioner.force(item.path, text)
            log_probability += forced.log_probability
            words += len(forced.words) + 1
    assert evaluation.likelihood is not None
    assert evaluation.likelihood.perplexity.value == pytest.approx(math.exp(-log_probability / words), rel=1e-5)
    assert (evaluation.likelihood.words, evaluation.likelihood.captions) == (words, 10)
    assert evaluation.likelihood.unknown == pytest.approx(8 / words)  # "very soft old in house and two zebras"


@pytest.mark.parametrize("threads", [1, 3])
def test_results_do_not_depend_on_the_number_of_threads(bundle, folder, threads: int) -> None:
    one = evaluate(load_model(bundle, threads=2), folder, batch=1)
    loaded = load_model(bundle, threads=threads)
    assert loaded.captioner.threads == threads
    other = evaluate(loaded, folder, batch=1)
    assert [caption.text for caption in one.captions] == [caption.text for caption in other.captions]
    assert one.scores.values == other.scores.values
    assert one.likelihood == other.likelihood


@pytest.mark.parametrize("batch", [1, 2, 3])
def test_results_do_not_depend_on_the_batch_size(model, folder, batch: int) -> None:
    whole, parts = evaluate(model, folder), evaluate(model, folder, batch=batch)
    assert [c.text for c in whole.captions] == [c.text for c in parts.captions]
    for one, other in zip(whole.captions, parts.captions, strict=True):
        np.testing.assert_allclose(one.alphas, other.alphas, atol=1e-6)
    assert whole.likelihood is not None and parts.likelihood is not None
    assert whole.likelihood.perplexity.value == pytest.approx(parts.likelihood.perplexity.value, rel=1e-6)


def test_captions_are_compared_with_the_training_split_of_the_data(model, folder) -> None:
    evaluation = evaluate(model, folder)
    known = {"a cat on the mat", "something else"}
    expected = sum(caption.text not in known for caption in evaluation.captions) / 5
    assert evaluation.diversity.unseen is not None and evaluation.diversity.unseen.value == expected


def test_figures_that_were_not_measured_are_listed_with_the_reason(model, folder, tmp_path) -> None:
    alone = write(tmp_path / "captions_val.json", coco(REFERENCES, "{:012d}.png"))
    evaluation_set = read_evaluation_set(alone, "val", images=folder / "images")
    source = PictureFiles(model.captioner.backend, evaluation_set.captions.items)
    evaluation = protocol.evaluate(model, evaluation_set, source, model.captioner.options(), likelihood=False)
    on_request = {"deletion", "reliance", "weight randomisation"}
    assert set(evaluation.not_measured) == {"captions not in the training set", "boxes", "likelihood", *on_request}
    assert "--train-captions" in tables.text(evaluation)
    assert "SPICE" in evaluation.scores.metrics or "SPICE" in evaluation.scores.unavailable


def test_boxes_and_deletion_are_measured_if_asked_for(model, folder) -> None:
    evaluation = evaluate(model, folder, boxes=folder / "instances_val.json", deletions=3, occlusions=2)
    names = {7: "cat", 3: "dog"}
    nouns = [
        word.text == names[item.id]
        for item, caption in zip(evaluation.items, evaluation.captions, strict=True)
        if item.id in names
        for word in caption.words
        if word.text in ("cat", "dog")
    ]
    assert nouns, "the toy must say a noun for this test to tell anything"
    if evaluation.grounding is not None:
        assert evaluation.grounding.nouns == sum(nouns)
        assert evaluation.grounding.mass.even == pytest.approx(0.25)
    else:
        assert not any(nouns)
    assert any("3 of 5 images have no box" in note for note in evaluation.notes)
    assert evaluation.deletion is not None and evaluation.deletion.images <= 3
    assert evaluation.hallucination is not None and evaluation.hallucination.captions == 2
    assert evaluation.reliance is not None and evaluation.reliance.images == 2
    written = tables.text(evaluation)
    for title in ("Hallucination", "CHAIRi", "Reliance", "words from habit"):
        assert title in written
    assert {"hallucination", "reliance", "randomisation"} <= set(tables.record(evaluation))


def test_the_share_of_nouns_without_a_box_is_printed_and_in_the_json(model, folder) -> None:
    named = [caption(word("dog", LEFT), word("cat", LEFT)), caption(word("dog", LEFT)), caption(word("dog", LEFT))]
    dog, cat, frame = Box("dog", 0, 0, 10, 10), Box("cat", 0, 0, 10, 10), Frame(20, 10)
    found = grounding(*grounded_nouns(named, [[dog], [dog], [cat]], [frame] * 3))  # a cat and a dog are absent
    evaluation = replace(evaluate(model, folder, likelihood=False), grounding=found)
    (line,) = [line for line in tables.text(evaluation).splitlines() if "nouns without a box" in line]
    assert "50.0%" in line and " to " in line and "2 of 4" in line
    share = tables.record(evaluation)["boxes"]["absent_share"]
    assert share["low"] < share["value"] == 0.5 < share["high"]


def test_limit_uses_the_first_images_and_adds_a_note(model, folder) -> None:
    evaluation = evaluate(model, folder, limit=2)
    assert [item.id for item in evaluation.items] == [7, 3]
    assert any("images 1 to 2 of 5" in note for note in evaluation.notes)


def test_an_offset_leaves_the_first_images_out(model, folder) -> None:
    first, rest = evaluate(model, folder, limit=2), evaluate(model, folder, offset=2)
    everything = [item.id for item in evaluate(model, folder).items]
    assert [item.id for item in (*first.items, *rest.items)] == everything
    assert any("images 3 to 5 of 5" in note for note in rest.notes)
    assert [item.id for item in evaluate(model, folder, offset=1, limit=2).items] == everything[1:3]
    with pytest.raises(UsageError, match="--offset 5 leaves no image: val has 5"):
        evaluate(model, folder, offset=5)


def test_missing_pictures_are_an_error_with_counts_unless_allowed(model, folder, tmp_path) -> None:
    more = {**REFERENCES, 999: ["a mat"], 998: ["a dog"]}
    alone = write(tmp_path / "captions_val.json", coco(more, "{:012d}.png"))
    with pytest.raises(CaptionerError, match=r"2 of 7 pictures of val are missing.*000000000999\.png"):
        read_evaluation_set(alone, "val", images=folder / "images")
    evaluation_set = read_evaluation_set(alone, "val", images=folder / "images", allow_missing=True)
    assert len(evaluation_set.captions) == 5
    assert any("2 of 7" in note and "not comparable" in note for note in evaluation_set.notes)


def test_images_without_references_are_counted_and_left_out(folder, tmp_path) -> None:
    alone = write(tmp_path / "captions_val.json", coco({**REFERENCES, 998: [], 999: ["  "]}, "{:012d}.png"))
    evaluation_set = read_evaluation_set(alone, "val", images=folder / "images")
    assert len(evaluation_set.captions) == 5
    assert any("2 of 7 images have no reference" in note for note in evaluation_set.notes)
    with pytest.raises(CaptionerError, match="none of the 1 images"):
        read_evaluation_set(write(tmp_path / "b" / "captions_val.json", coco({1: []})), "val")


def test_the_error_for_an_unknown_split_lists_the_splits(folder) -> None:
    with pytest.raises(UsageError, match=r"no split 'test'.*train, val"):
        read_evaluation_set(folder, "test")


def test_a_file_without_a_split_in_its_name_is_the_split_asked_for(folder, tmp_path) -> None:
    alone = write(tmp_path / "mine.json", coco(REFERENCES, "{:012d}.png"))
    evaluation_set = read_evaluation_set(alone, "test", images=folder / "images")
    assert (len(evaluation_set.captions), evaluation_set.split, evaluation_set.training) == (5, "test", None)


def test_an_unreadable_picture_is_a_failure_and_the_rest_is_measured(model, folder, tmp_path) -> None:
    for path in (folder / "images").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes() if path.stem != f"{3:012d}" else b"no picture")
    evaluation_set = read_evaluation_set(folder / "captions_val.json", "val", images=tmp_path)
    source = PictureFiles(model.captioner.backend, evaluation_set.captions.items)
    evaluation = protocol.evaluate(model, evaluation_set, source, model.captioner.options(), batch=2)
    assert [item.id for item in evaluation.items] == [7, 5, 9, 4]
    assert [Path(failure.name).name for failure in evaluation.failures] == ["000000000003.png"]


def test_captions_of_a_hard_model_have_sampled_cells(tmp_path, folder) -> None:
    hard = load_model(write_model(tmp_path / "hard", hard=True).folder)
    evaluation = evaluate(hard, folder)
    assert evaluation.attention == "hard"
    assert all(word.cell is not None for caption in evaluation.captions for word in caption.words)


# As if the packages were not installed. None in sys.modules would hide them too, but scipy looks up torch there.
HIDE_THE_TRAINING_PACKAGES = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "torchvision", "pydantic", "yaml", "rich", "safetensors"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
"""


def test_the_light_install_evaluates_without_torch(bundle, folder) -> None:
    code = (
        f"{HIDE_THE_TRAINING_PACKAGES}\n"
        "from captioner.cli import main\n"
        f"main(['evaluate', '--model', {str(bundle)!r}, '--data', {str(folder)!r}, "
        "'--split', 'val', '--deletion', '1'], standalone_mode=False)\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "BLEU-4" in done.stdout and "perplexity" in done.stdout


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training run of random weights, sharp enough that captions differ between pictures."""
    torch = pytest.importorskip("torch", reason="a training run is of the train half")
    from captioner.model.network import Network
    from captioner.text.vocabulary import SPECIAL, Vocabulary
    from captioner.train import checkpoint
    from captioner.train import config_file as config

    folder = tmp_path_factory.mktemp("runs") / "tiny"
    settings = config.parse(
        {
            "name": "tiny",
            "data": {"train": [], "val": []},
            "encoder": {"weights": "none", "size": 64, "annotations": ["stage3"]},
            "features": {"folder": str(folder.parent / "cache")},
            "model": {"annotation_size": 16, "embedding_size": 24, "hidden_size": 24, "attention": {"size": 16}},
            "training": {
                "validation": {"search": {"beam": 2, "length_power": 0.5, "max_length": 9, "repeat_penalty": 1.5}}
            },
        },
        "the test",
    )
    vocabulary = Vocabulary((*SPECIAL, "a", "cat", "dog", "on", "the", "mat", "runs", "sleeps"), frozenset({"a"}))
    torch.manual_seed(0)
    network = Network(settings.encoder, settings.model, len(vocabulary))
    with torch.no_grad():
        network.decoder.embedding.weight.mul_(6)
    (folder / "best").mkdir(parents=True)
    (folder / "config.yaml").write_text(config.dump(settings), encoding="utf-8")
    vocabulary.save(folder / "vocabulary.json")
    checkpoint.write(folder / "best" / "model.safetensors", network.state_dict(), {})
    return folder


def test_a_training_run_is_evaluated_with_its_own_search_settings(run, folder) -> None:
    loaded = load_model(run)
    assert (loaded.name, loaded.attention) == ("tiny", "soft")
    evaluation = evaluate(loaded, folder)
    assert evaluation.options == SearchOptions(beam=2, length_power=0.5, max_length=9, repeat_penalty=1.5)
    assert "repeat penalty 1.5, at most 9 words" in tables.heading(evaluation)
    assert tables.record(evaluation)["search"]["repeat_penalty"] == 1.5
    assert [c.text for c in evaluation.captions] == [loaded.captioner(item.path).text for item in evaluation.items]
    with pytest.raises(UsageError, match="export it"):
        load_model(run, backend="onnx")


def test_cached_features_give_the_same_results_as_pictures(run, folder) -> None:
    from captioner.train import features

    loaded = load_model(run)
    backend = loaded.captioner.backend
    evaluation_set = read_evaluation_set(folder, "val", boxes=folder / "instances_val.json")
    items = evaluation_set.captions.items
    encoder = backend.network.encoder  # type: ignore[attr-defined]
    spec = features.FeatureSpec.of(encoder, flip=False)
    caches = run.parent / "cache"
    made = features.build(features.cache_folder(caches, spec), spec, encoder, [item.path for item in items], threads=1)
    options = loaded.captioner.options()
    expected = evaluate(loaded, folder, boxes=folder / "instances_val.json")
    for folder in (caches, made.folder):  # a folder of caches, and the cache itself
        source = FeatureCache(backend, items, folder)
        evaluation = protocol.evaluate(loaded, evaluation_set, source, options, batch=2)
        assert [c.text for c in evaluation.captions] == [c.text for c in expected.captions]
        for one, other in zip(evaluation.captions, expected.captions, strict=True):
            np.testing.assert_allclose(one.alphas, other.alphas, atol=2e-3)  # the cache holds 16 bits
        assert evaluation.likelihood is not None and expected.likelihood is not None
        perplexity = expected.likelihood.perplexity.value
        assert evaluation.likelihood.perplexity.value == pytest.approx(perplexity, rel=2e-3)
        assert (evaluation.grounding is None) == (expected.grounding is None)


def test_the_error_for_a_missing_cache_names_it(run, folder, bundle, tmp_path) -> None:
    backend = load_model(run).captioner.backend
    items = read_evaluation_set(folder, "val").captions.items
    with pytest.raises(UsageError, match="no such folder"):
        FeatureCache(backend, items, tmp_path / "none")
    with pytest.raises(UsageError, match="no cache efficientnet_lite0-64"):
        FeatureCache(backend, items, tmp_path)
    with pytest.raises(UsageError, match="--backend torch"):
        FeatureCache(load_model(bundle).captioner.backend, items, tmp_path)


def test_a_run_without_a_validation_is_an_error(run, tmp_path) -> None:
    (tmp_path / "config.yaml").write_text((run / "config.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    with pytest.raises(UsageError, match="not been validated"):
        load_model(tmp_path)
