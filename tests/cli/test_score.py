"""`captioner score`: text, JSON, and errors for files that do not match."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from captioner.cli import main
from captioner.errors import CaptionerError, UsageError

CAPTIONS = {1: "a man riding a wave", 2: "two dogs play in the snow", 3: "a red bus on a street", 4: "a cat"}
REFERENCES = {
    1: ["a man rides a wave", "a surfer on a wave", "A man riding a large wave."],
    2: ["two dogs playing in the snow", "dogs in snow"],
    3: ["a red bus driving down a street", "A bus on the street."],
    4: ["a black cat sleeps on a sofa", "a cat"],
}
PURE = ["--metrics", "BLEU,ROUGE-L,CIDEr"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_results(tmp_path / "r.json", CAPTIONS)
    annotations = [{"image_id": i, "caption": c} for i, group in REFERENCES.items() for c in group]
    (tmp_path / "refs.json").write_text(json.dumps({"images": [], "annotations": annotations}))
    return tmp_path


def write_results(file: Path, captions: dict[int, str]) -> None:
    file.write_text(json.dumps([{"image_id": i, "caption": c} for i, c in captions.items()]))


def run(folder: Path, *arguments: str) -> Result:
    full = [str(folder / a) if a.endswith((".json", ".gz")) else a for a in arguments]
    return CliRunner().invoke(main, ["score", "--references", str(folder / "refs.json"), *full])


def test_json_has_scores_times_100_with_intervals(folder: Path) -> None:
    result = run(folder, "--results", "r.json", "--json")
    report = json.loads(result.stdout)
    assert result.exit_code == 0
    assert {"BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "ROUGE-L", "CIDEr", "METEOR"} <= report["scores"].keys()
    assert 50 < report["scores"]["BLEU-1"] <= 100 and report["scores"]["CIDEr"] > 100
    for name, value in report["scores"].items():
        low, high = report["intervals"][name]
        assert low <= value <= high or name.startswith("BLEU")
    assert report["counts"]["images"] == 4 and report["counts"]["references"] == 9


def test_text_has_scores_with_intervals_and_the_metrics_that_are_not_available(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("captioner.metrics.spice.shutil.which", lambda _: None)
    result = run(folder, "--results", "r.json", "--metrics", "BLEU-4,SPICE")
    assert "4 images, 9 references" in result.stdout and "BLEU-4" in result.stdout
    assert "SPICE    not available: needs Java" in result.stdout


def test_few_images_give_a_warning_about_cider(folder: Path) -> None:
    assert "CIDEr is unreliable on 4 images" in run(folder, "--results", "r.json", *PURE).stderr


def test_existing_statistics_are_kept_and_named_without_overwrite(folder: Path) -> None:
    (folder / "stats.json").write_text("mine")
    refused = run(folder, "--write-reference-stats", "stats.json")
    assert isinstance(refused.exception, UsageError) and "exists and is kept" in str(refused.exception)
    assert (folder / "stats.json").read_text() == "mine"
    assert run(folder, "--write-reference-stats", "stats.json", "--overwrite").exit_code == 0
    assert (folder / "stats.json").read_text() != "mine"


def test_reference_statistics_are_written_and_used(folder: Path) -> None:
    written = run(folder, "--write-reference-stats", "stats.json.gz")
    assert written.exit_code == 0 and "statistics of 4 images" in written.stderr
    plain = json.loads(run(folder, "--results", "r.json", *PURE, "--json").stdout)
    again = run(folder, "--results", "r.json", *PURE, "--json", "--reference-stats", "stats.json.gz")
    assert json.loads(again.stdout)["scores"] == pytest.approx(plain["scores"], abs=1e-6)
    assert "unreliable" not in again.stderr


def test_two_systems_are_compared_with_results_or_with_two_arguments(folder: Path) -> None:
    write_results(folder / "b.json", dict.fromkeys(reversed(CAPTIONS), "a dog"))
    first = run(folder, "--results", "r.json", "--compare", "b.json", *PURE, "--json")
    second = run(folder, "--compare", "r.json", "b.json", *PURE, "--json")
    report = json.loads(first.stdout)
    assert report == json.loads(second.stdout)
    gap = report["differences"]["ROUGE-L"]
    assert gap["difference"] == pytest.approx(
        report["scores"]["ROUGE-L"] - report["compared_with"]["scores"]["ROUGE-L"]
    )
    assert gap["interval"][0] <= gap["difference"] <= gap["interval"][1] and 0 <= gap["p"] <= 1
    text = run(folder, "--compare", "r.json", "b.json", *PURE).stdout
    assert f"score: {folder / 'r.json'}; other: {folder / 'b.json'}" in text and "difference" in text


def test_one_file_is_too_few_to_compare(folder: Path) -> None:
    result = run(folder, "--compare", "refs.json")
    assert (
        result.exit_code == 2 and f"--compare takes two files: --compare {folder / 'refs.json'} OTHER" in result.stderr
    )


def test_a_file_compared_with_itself_has_difference_0(folder: Path) -> None:
    report = json.loads(run(folder, "--compare", "r.json", "r.json", *PURE, "--json").stdout)
    assert {gap["difference"] for gap in report["differences"].values()} == {0}


def test_images_that_only_one_file_has_are_counted_and_exit_1(folder: Path) -> None:
    write_results(folder / "r.json", {1: CAPTIONS[1], 2: CAPTIONS[2], 77: "a ghost"})
    result = run(folder, "--results", "r.json", *PURE, "--json")
    assert result.exit_code == 1
    assert "1 result of images without references (77); not scored" in result.stderr
    assert "2 images with references but without a result (3, 4); not scored" in result.stderr
    counts = json.loads(result.stdout)["counts"]
    assert (counts["images"], counts["results_without_references"], counts["references_without_results"]) == (2, 1, 2)


def test_with_subset_missing_results_are_reported_and_exit_0(folder: Path) -> None:
    write_results(folder / "r.json", {1: CAPTIONS[1]})
    result = run(folder, "--results", "r.json", *PURE, "--subset")
    assert result.exit_code == 0 and "3 images with references but without a result" in result.stderr


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the file is empty"),
        ("[{", "the JSON is cut off"),
        ("[]", "no results"),
        ('[{"image_id": 1, "caption": "x"}, {"image_id": 1, "caption": "y"}]', "1 image with more than one result"),
        ('[{"image_id": 8, "caption": "x"}]', "no image of .* has references"),
    ],
)
def test_the_error_for_a_bad_results_file_has_the_reason(folder: Path, content: str, message: str) -> None:
    (folder / "r.json").write_text(content)
    result = run(folder, "--results", "r.json")
    assert result.exit_code != 0 and isinstance(result.exception, CaptionerError)
    with pytest.raises(CaptionerError, match=message):
        raise result.exception


def test_systems_with_different_images_are_an_error(folder: Path) -> None:
    write_results(folder / "b.json", {1: "a dog"})
    result = run(folder, "--results", "r.json", "--compare", "b.json", *PURE)
    assert "3 images have a result in only one" in str(result.exception)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--results", "absent.json"],
        ["--results", "r.json", "refs.json"],
        ["--results", "r.json", "--samples", "0"],
    ],
)
def test_a_wrong_call_exits_2(folder: Path, arguments: list[str]) -> None:
    assert run(folder, *arguments).exit_code == 2


def test_scoring_does_not_import_torch(folder: Path) -> None:
    code = (
        "import sys; from captioner.cli import main; "
        f"main(['score', '--references', {str(folder / 'refs.json')!r}, '--results', "
        f"{str(folder / 'r.json')!r}, '--json'], standalone_mode=False); "
        "assert not {'torch', 'onnxruntime', 'pydantic'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
