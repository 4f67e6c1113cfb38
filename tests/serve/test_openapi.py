"""The description of the calls: true for everything that schemathesis can think of, and complete."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from captioner.serve import openapi
from captioner.serve.app import ROUTES
from captioner.serve.caption_request import OWN, SEARCH
from captioner.serve.service_settings import ServiceSettings
from tests.processes import run_with_children
from tests.serve.running import running

UNDESCRIBED = {"/", "/docs", "/openapi.json"}  # pages, and the description itself


def test_every_call_and_option_is_described() -> None:
    paths = openapi.document(ServiceSettings())["paths"]
    assert set(paths) | UNDESCRIBED == {route.path for route in ROUTES} | UNDESCRIBED
    for route in ROUTES:
        if route.path not in UNDESCRIBED:
            assert route.methods is not None
            assert {method.upper() for method in paths[route.path]} == route.methods - {"HEAD"}
    assert set(openapi.options()) == {*OWN, *SEARCH}


@pytest.mark.slow
def test_nothing_that_schemathesis_sends_gets_a_500_or_an_undescribed_answer(model: Path, tmp_path: Path) -> None:
    with running("--model", str(model), "--no-log") as service:
        checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
        command = [sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()", "run"]
        command += [f"{service.url}/openapi.json", "--checks", checks, "--max-examples", "12", "--seed", "1"]
        done = run_with_children([*command, "--no-color"], seconds=500, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-5000:]
    assert not any("Traceback" in line for line in service.lines)
