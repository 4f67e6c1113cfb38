"""What `captioner web` writes: verified files, an npm package, and nothing in the place of other files."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from captioner import Captioner
from captioner.bundle.manifest import EncoderRecord
from captioner.cli import main
from captioner.errors import CaptionerError, UsageError
from captioner.options import SearchOptions
from captioner.web import onnxruntime_web
from captioner.web.onnxruntime_web import FILES, runtime_files
from captioner.web.web_folder import write_web_folder
from tests.tiny_bundle import COLS, ROWS, SIDE, D, write_model


def files_of(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_every_file_is_listed_with_its_size_and_checksum(site: Path):
    settings = json.loads((site / "captioner.json").read_text())
    assert files_of(site) == {*settings["files"], "captioner.json", "release.js"}
    for name, record in settings["files"].items():
        data = (site / name).read_bytes()
        assert record == {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    release = json.loads((site / "release.js").read_text().removeprefix("self.RELEASE = ").rstrip(";\n"))
    for name, sha256 in release["files"].items():
        assert hashlib.sha256((site / name).read_bytes()).hexdigest() == sha256


def test_every_file_that_a_script_or_the_page_names_is_there(site: Path):
    names = files_of(site)
    for path in site.glob("*.js"):
        imported = re.findall(
            r'(?:from|import\(|importScripts\()\s*"(?:\./)?([\w.-]+)"', path.read_text(encoding="utf-8")
        )
        assert set(imported) <= names, path.name
    page = (site / "index.html").read_text()
    assert set(re.findall(r'(?:href|src)="([^"]+)"', page)) <= names
    assert not re.search(r"https?://", page)
    icons = json.loads((site / "app.webmanifest").read_text())["icons"]
    assert {icon["src"] for icon in icons} <= names


def test_the_model_in_the_folder_is_a_bundle_that_python_loads(site: Path, model: Path):
    assert Captioner.load(site / "model" / "toy").defaults == Captioner.load(model).defaults


def test_the_encoder_of_a_neighbouring_bundle_comes_along(tmp_path: Path, runtime: object):
    write_model(tmp_path / "first")
    encoder = EncoderRecord("means", SIDE, ROWS, COLS, D, (0.0,) * 3, (32.0,) * 3, "../first/encoder.onnx")
    second = write_model(tmp_path / "second", encoder=encoder)
    write_web_folder(second.folder, tmp_path / "web")
    assert {name for name in files_of(tmp_path / "web") if "encoder" in name} == {"model/first/encoder.onnx"}
    assert "model/first/encoder.onnx" in json.loads((tmp_path / "web" / "captioner.json").read_text())["model_files"]
    assert Captioner.load(tmp_path / "web" / "model" / "second").defaults == Captioner.load(second.folder).defaults


def test_an_existing_folder_is_kept_and_another_persons_is_never_replaced(tmp_path: Path, model: Path, runtime: object):
    web = tmp_path / "web"
    write_web_folder(model, web)
    before = {path: path.stat().st_ino for path in web.rglob("*")}
    with pytest.raises(UsageError, match="exists and is kept"):
        write_web_folder(model, web)
    assert {path: path.stat().st_ino for path in web.rglob("*")} == before
    write_web_folder(model, web, overwrite=True)
    (web / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"notes\.txt is not a file of a web folder"):
        write_web_folder(model, web, overwrite=True)
    other = tmp_path / "other"
    other.mkdir()
    (other / "letter.txt").write_text("mine")
    with pytest.raises(UsageError, match="was not written by `captioner web`"):
        write_web_folder(model, other, overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "web"]


def test_a_model_that_samples_is_refused(tmp_path: Path):
    model = write_model(tmp_path / "toy", hard=True, decoding=SearchOptions(hard_attention="sampled"))
    with pytest.raises(UsageError, match="which a browser can't do"):
        write_web_folder(model.folder, tmp_path / "web")


def test_without_npm_a_sentence_says_which_files_to_put_where(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, model: Path
):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    result = CliRunner().invoke(main, ["web", str(model), "-o", str(tmp_path / "web")])
    assert isinstance(result.exception, UsageError)
    for word in (*FILES, "--onnxruntime-web", "onnxruntime-web@1.30.0", "npm, which is not installed"):
        assert word in str(result.exception)
    assert not (tmp_path / "web").exists()


def test_the_runtime_is_taken_from_a_folder_and_a_changed_file_is_refused(
    tmp_path: Path, model: Path, runtime: dict[str, Path]
):
    package = tmp_path / "node_modules" / "onnxruntime-web"
    (package / "dist").mkdir(parents=True)
    for name, path in runtime.items():
        shutil.copyfile(path, package / "dist" / name)
    command = ["web", str(model), "-o", str(tmp_path / "web"), "--onnxruntime-web", str(package)]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 0 and "http.server" in result.output
    script = package / "dist" / "ort.wasm.min.mjs"
    script.write_bytes(script.read_bytes() + b"\n")
    with pytest.raises(CaptionerError, match=r"ort\.wasm\.min\.mjs: not the file of onnxruntime-web"):
        runtime_files(package)
    script.unlink()
    with pytest.raises(UsageError, match=r"has no ort\.wasm\.min\.mjs; put these files"):
        runtime_files(package)


@pytest.mark.skipif(os.name == "nt", reason="the replacement of npm is a shell script")
@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        ("echo broken > onnxruntime-web-1.30.0.tgz", "what npm fetched is not onnxruntime-web@1.30.0"),
        ("echo 'npm error code E404' >&2; exit 1", r"npm could not fetch .*npm error code E404"),
    ],
)
def test_a_package_with_another_hash_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, sentence: str
):
    (tmp_path / "npm").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(CaptionerError, match=sentence):
        runtime_files()
    assert not (tmp_path / "cache").exists()


def test_the_folder_is_a_package_that_npm_would_publish(site: Path):
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed")
    done = subprocess.run([npm, "pack", "--dry-run", "--json"], cwd=site, capture_output=True, text=True, check=True)
    packed = json.loads(done.stdout)
    entry = packed[0] if isinstance(packed, list) else next(iter(packed.values()))
    assert entry["name"] == "captioner-toy"
    assert {file["path"] for file in entry["files"]} == files_of(site)
    package = json.loads((site / "package.json").read_text())
    assert package["exports"]["."] == {"types": "./captioner.d.ts", "default": "./captioner.js"}


def test_the_package_and_the_licence_file_name_the_licence_of_the_model(tmp_path: Path, site: Path, runtime: object):
    assert json.loads((site / "package.json").read_text())["license"] == "SEE LICENSE IN LICENSE"
    assert "model/: CC0-1.0" in (site / "LICENSE").read_text()
    model = write_model(tmp_path / "free").folder
    manifest = json.loads((model / "manifest.json").read_text()) | {"licence": "Apache-2.0"}
    (model / "manifest.json").write_text(json.dumps(manifest))
    write_web_folder(model, tmp_path / "web")
    assert json.loads((tmp_path / "web" / "package.json").read_text())["license"] == "Apache-2.0"


def test_scripts_have_an_ending_that_every_host_knows(site: Path):
    assert not [name for name in files_of(site) if name.endswith(".mjs")]


def test_the_version_is_pinned_with_npms_own_hash():
    assert re.fullmatch(r"\d+\.\d+\.\d+", onnxruntime_web.VERSION)
    assert re.fullmatch(r"sha512-[A-Za-z0-9+/]{86}==", onnxruntime_web.INTEGRITY)
