"""The manifest: every entry is checked, and those of the first version are still read."""

from __future__ import annotations

import json

import pytest

from captioner.bundle.loading import load_bundle
from captioner.bundle.manifest import FORMAT, Manifest
from captioner.errors import CaptionerError
from captioner.options import SearchOptions

# As version 0.1 wrote it.
DECODING = {"beam": 3, "length_power": 1, "max_length": 20, "look": "expected", "repeat_penalty": 0}


def change(folder, **values) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_a_newer_format_asks_for_an_upgrade(model):
    change(model.folder, format=FORMAT + 1, anything="new")
    with pytest.raises(CaptionerError, match=r"newer than this captioner reads.*upgrade"):
        load_bundle(model.folder)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "not JSON"),
        ("[1, 2]", "not a captioner manifest"),
        ('{"model_type": "bert"}', "not a captioner manifest"),
        ('{"format": "one"}', "format must be int"),
        ('{"format": 1}', "missing"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_a_foreign_manifest_is_refused(tmp_path, content, said):
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(CaptionerError, match=said):
        load_bundle(tmp_path)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("name", "../evil", "name '../evil'"),
        ("attention", "deep", "one of soft, hard"),
        ("scores", {"BLEU-4": "high"}, "BLEU-4 must be float"),
        ("scores", {"BLEU-4": True}, "BLEU-4 must be float"),
        ("licence", None, "licence must be str"),
        ("scores", {"BLEU-4": float("nan")}, "BLEU-4 must be a finite number"),
        ("scores", {"BLEU-4": 10**400}, "BLEU-4 must be a finite number"),
        ("files", {"encoder.onnx": {"size": 10**30, "sha256": "0" * 64}}, "is not that of a file"),
        ("name", ["x"] * 1_000_000, r"name must be str, not \['x'.{1,400}$"),
        ("surprise", 1, "unknown entry 'surprise'"),
        ("decoding", DECODING | {"beam": 0}, "beam 0 is too small"),
        ("decoding", DECODING | {"beem": 3}, "unknown search option 'beem'"),
        ("decoding", DECODING | {"repeat_penalty": -1}, "repeat_penalty -1.0 is too small"),
        ("decoding", DECODING | {"repeat_penalty": "much"}, "repeat_penalty must be a number"),
        ("files", {"encoder.onnx": {"size": 1}}, "sha256 is missing"),
        ("files", {"/etc/passwd": {"size": 1, "sha256": "0" * 64}}, "not the name of a file"),
        ("files", {"../../x/encoder.onnx": {"size": 1, "sha256": "0" * 64}}, "not the name of a file"),
        ("files", {"../../encoder.onnx": {"size": 1, "sha256": "0" * 64}}, "not the name of a file"),
        ("files", {"sub/encoder.onnx": {"size": 1, "sha256": "0" * 64}}, "not the name of a file"),
        ("files", {"../other/decoder.onnx": {"size": 1, "sha256": "0" * 64}}, "only the encoder"),
        ("files", {"encoder.onnx": {"size": 1, "sha256": "0" * 64}}, "does not list begin.onnx"),
    ],
)
def test_a_wrong_entry_is_named(model, key, value, said):
    change(model.folder, **{key: value})
    with pytest.raises(CaptionerError, match=said):
        load_bundle(model.folder)


def test_a_manifest_goes_through_json_unchanged(model):
    assert Manifest.from_json(json.loads(json.dumps(model.manifest.to_json()))) == model.manifest


def test_search_options_of_the_first_version_are_read(model):
    decoding = DECODING | {"look": "argmax"}
    values = model.manifest.to_json() | {"decoding": decoding}
    assert Manifest.from_json(values | {"attention": "hard"}).decoding == SearchOptions(hard_attention="argmax")
    assert Manifest.from_json(values | {"attention": "soft"}).decoding == SearchOptions()
