"""Service: what happens when models cannot be loaded, and when nothing is loaded yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from captioner.captioning import Captioner
from captioner.errors import UsageError
from captioner.serve.problems import Problem
from captioner.serve.service import Service
from captioner.serve.service_metrics import ServiceMetrics
from captioner.serve.service_settings import ServiceSettings


def test_a_model_that_cannot_be_loaded_is_told_and_never_ready(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(ServiceSettings(models=(str(model),)), ServiceMetrics())

    def fail(*arguments: object, **options: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(Captioner, "load", fail)
    service.start()
    assert not service.ready
    assert "no room" in str(service.failure)
    with pytest.raises(Problem, match="still loading"):
        service.batcher(None)
    service.close()


def test_two_models_of_one_name_are_refused(model: Path) -> None:
    service = Service(ServiceSettings(models=(str(model), str(model))), ServiceMetrics())
    service.start()
    assert isinstance(service.failure, UsageError)
    assert "another model is called 'toy' too" in str(service.failure)
    service.close()
