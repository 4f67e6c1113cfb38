"""README, docs and help are true: commands and options exist, links work, the site builds."""

from __future__ import annotations

import ast
import importlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml

from captioner import cli

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md"), *ROOT.glob("weights/*/*.md")]
)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
SCRIPTS = [path for path in sorted((ROOT / "scripts").iterdir()) if path.suffix == "" and path.is_file()]

# Words of advertising, and marks of unfinished work.
UNWANTED = re.compile(
    r"\b(state[- ]of[- ]the[- ]art|cutting[- ]edge|blazing|seamless(ly)?|effortless(ly)?|world[- ]class|"
    r"revolutionary|supercharge|game[- ]chang\w+|TODO|FIXME|XXX|lorem ipsum|TBD)\b",
    re.IGNORECASE,
)
# Absolute paths of one person's machine.
PRIVATE_FOLDER = re.compile(r"(?<![\w.~-])/(?:root|work|Users/\w+|home/(?!USER|you)\w+)/")


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def command(name: str) -> click.Command:
    """A top-level command, such as `caption` or `data`."""
    loaded: click.Command = importlib.import_module(cli.COMMANDS[name][0]).command
    return loaded


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command and subcommand, with the words that call it."""

    def below(words: str, parent: click.Command) -> Iterator[tuple[str, click.Command]]:
        yield words, parent
        if isinstance(parent, click.Group):
            for part, child in parent.commands.items():
                yield from below(f"{words} {part}", child)

    for first in cli.COMMANDS:
        yield from below(first, command(first))


def shell_lines(text: str) -> Iterator[str]:
    """Commands in the shell blocks of a page, continued lines joined, comments dropped."""
    for language, block in FENCE.findall(text):
        if language in ("sh", "bash", "console", "shell"):
            for line in block.replace("\\\n", " ").splitlines():
                line = re.sub(r"(^|\s)#.*$", "", line).strip().removeprefix("$ ")
                if line:
                    yield line


def in_prose(text: str) -> Iterator[str]:
    """`captioner ...` and `scripts/...` in the text of a page."""
    yield from re.findall(r"`((?:captioner|scripts/)[^`\n]*)`", FENCE.sub("", text))


def calls(text: str) -> Iterator[list[str]]:
    """The argument lists of the project's own commands on a page."""
    for line in [*shell_lines(text), *in_prose(text)]:
        for part in re.split(r"\s*(?:\||&&|;)\s*", line):
            try:
                words = shlex.split(part)
            except ValueError:
                continue
            while words and re.fullmatch(r"\w+=\S*", words[0]):
                del words[0]
            if "captioner" in words[:8] and words[0] in ("torchrun", "python", "python3", "captioner"):
                yield words[words.index("captioner") :]
            elif words and words[0].startswith("scripts/"):
                yield words


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_on_a_page_have_a_target(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for target in LINK.findall(text):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        linked = (page.parent / file).resolve() if file else page
        assert linked.exists(), f"{name(page)} links to {target}"
        if anchor and linked.suffix == ".md":
            assert anchor in anchors(linked.read_text(encoding="utf-8")), f"{name(page)} links to {target}"


def anchors(text: str) -> set[str]:
    """The anchors that GitHub makes of the headings."""
    titles = re.findall(r"^#+ +(.+?) *$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_and_options_on_a_page_exist(page: Path) -> None:
    for words in calls(page.read_text(encoding="utf-8")):
        line = " ".join(words)
        if words[0].startswith("scripts/"):
            assert (ROOT / words[0]).is_file(), f"{name(page)}: {line}"
            continue
        if len(words) == 1 or words[1].isupper():
            continue
        if words[1].startswith("-"):
            assert words[1] in {"--help", "-h", "--version", "--debug"}, f"{name(page)}: {line}"
            continue
        assert words[1] in cli.COMMANDS, f"{name(page)}: {line}"
        called, rest = command(words[1]), words[2:]
        while isinstance(called, click.Group) and rest and rest[0] in called.commands:
            called, rest = called.commands[rest[0]], rest[1:]
        known = {option for parameter in called.params for option in (*parameter.opts, *parameter.secondary_opts)}
        known |= {"--help", "-h"}
        for word in rest:
            option = word.partition("=")[0].strip("[]…")
            if re.match(r"--?[a-z]", option):
                assert option in known, f"{name(page)}: {line}: no option {option}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_configs_named_on_a_page_exist(page: Path) -> None:
    for config in re.findall(r"\bconfigs/[\w-]+\.yaml\b", page.read_text(encoding="utf-8")):
        assert (ROOT / config).is_file(), f"{name(page)} names {config}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_python_on_a_page_is_python(page: Path) -> None:
    for language, block in FENCE.findall(page.read_text(encoding="utf-8")):
        if language in ("python", "py"):
            ast.parse(block)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_page_is_finished_and_does_not_advertise(page: Path) -> None:
    assert [match[0] for match in UNWANTED.finditer(page.read_text(encoding="utf-8"))] == []


def test_the_kubernetes_job_on_the_scale_page_captions_the_shard_of_its_index(tmp_path: Path) -> None:
    """A command of that name in the PATH says how it was called; click says whether that is a correct call."""
    (text,) = [block for kind, block in FENCE.findall((ROOT / "docs/scale-out.md").read_text()) if kind == "yaml"]
    job = yaml.safe_load(text)
    assert (job["apiVersion"], job["kind"], job["spec"]["completionMode"]) == ("batch/v1", "Job", "Indexed")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    stand_in = tmp_path / "captioner"
    stand_in.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    stand_in.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "JOB_COMPLETION_INDEX": "7"}
    call = [*container["command"], *container["args"]]
    verb, *arguments = subprocess.check_output(call, env=environment, text=True).splitlines()
    values = command(verb).make_context(verb, arguments).params
    assert values["paths"] == ("s3://bucket/shards/00007.tar",)
    assert (values["output_name"], values["output_format"]) == ("s3://bucket/captions/", "parquet")


def test_no_tracked_file_contains_a_path_of_one_persons_machine() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    texts = {".py", ".md", ".toml", ".yaml", ".txt", ".sh", ".json", ".csv", ""}
    for line in listed.stdout.splitlines():
        path = ROOT / line
        if path == Path(__file__) or path.suffix not in texts or not path.is_file():
            continue
        match = PRIVATE_FOLDER.search(path.read_text(encoding="utf-8", errors="ignore"))
        assert match is None, f"{line}: {match[0] if match else ''}"


def test_every_command_has_a_help_text() -> None:
    assert [f"captioner {words}" for words, called in commands() if not called.help] == []


def test_every_option_is_documented() -> None:
    undocumented = [
        f"captioner {words} {parameter.opts[0]}"
        for words, called in commands()
        for parameter in called.params
        if isinstance(parameter, click.Option) and not parameter.hidden and not parameter.help
    ]
    assert undocumented == []


def test_every_command_is_mentioned_in_the_readme() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [first for first in cli.COMMANDS if not re.search(rf"\bcaptioner {first}\b", text)] == []


@pytest.mark.parametrize("script", SCRIPTS, ids=name)
def test_every_script_is_executable_and_prints_its_usage(script: Path) -> None:
    assert script.stat().st_mode & 0o100, "not executable"
    text = script.read_text(encoding="utf-8")
    assert text.startswith("#!")
    call = [script] if "bash" in text.splitlines()[0] else [sys.executable, script]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*call, "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        cwd="/",
        env=environment,
        stdin=subprocess.DEVNULL,
    )
    shown = done.stdout + done.stderr
    assert script.name in shown
    assert "Traceback" not in shown


def test_the_documentation_site_builds_without_a_warning_and_loads_nothing_from_the_network(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stderr
    for page in PAGES:
        if page.parent == ROOT / "docs":
            built = tmp_path / "site" / ("" if page.stem == "index" else page.stem) / "index.html"
            loaded = re.findall(r"<(?:script|link|img)[^>]*(?:src|href)=\"?(https?://[^\"\s>]+)", built.read_text())
            assert [address for address in loaded if "captioner-project" not in address] == [], page.name


def test_every_example_photograph_is_attributed() -> None:
    text = (ROOT / "examples" / "ATTRIBUTION.md").read_text(encoding="utf-8")
    photographs = [path.name for path in (ROOT / "examples").iterdir() if path.suffix != ".md"]
    assert len(photographs) >= 5
    assert [photograph for photograph in photographs if f"`{photograph}`" not in text] == []


@pytest.mark.parametrize("card", sorted(ROOT.glob("weights/*/README.md")), ids=name)
def test_a_model_card_begins_with_what_a_user_needs(card: Path) -> None:
    first = "\n".join(card.read_text(encoding="utf-8").splitlines()[:10])
    for word in (f"# {card.parent.name}", "captioner caption", "CIDEr", "[Limits](#limits)", "**Licence**"):
        assert word in first


@pytest.mark.parametrize(
    "name",
    [
        *("docs/caption-photos.md", "docs/serve.md", "CHANGELOG.md", "weights/default/README.md"),
        *("captioner/caption.py", "captioner/inference/confidence.py", "captioner/cli/output_options.py"),
        *("captioner/overlay/viewer.js", "captioner/writers/review.js", "captioner/serve/openapi.py"),
    ],
)
def test_confidence_has_one_meaning_everywhere(name: str) -> None:
    assert "expected share of its content words that are right" in (ROOT / name).read_text(encoding="utf-8")
