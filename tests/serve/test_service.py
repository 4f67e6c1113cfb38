"""Service: models that cannot be loaded, and the memory of pictures."""

from __future__ import annotations

import asyncio
import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from captioner.captioning import Captioner
from captioner.errors import UsageError
from captioner.images import reading
from captioner.images.limits import memory_budget
from captioner.serve.caption_request import build_request, named
from captioner.serve.overlay_call import PICTURE_SIDE
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


@pytest.mark.parametrize("long_side", [reading.THUMBNAIL, PICTURE_SIDE])
def test_pictures_count_as_memory_until_they_are_small(
    model: Path, monkeypatch: pytest.MonkeyPatch, long_side: int
) -> None:
    taken: list[int] = []

    def squash(image: Image.Image, size: int) -> np.ndarray:
        taken.append(memory_budget._taken)
        return np.zeros((size, size, 3), np.uint8)

    monkeypatch.setattr(reading, "squash", squash)
    service = Service(ServiceSettings(models=(str(model),)), ServiceMetrics())
    service.start()
    taken.clear()
    photo = io.BytesIO()
    Image.new("RGB", (3000, 1500)).save(photo, "PNG")
    asked = build_request([named("a.png", photo.getvalue())], {}, service.settings)
    batcher = service.batcher(None)
    ((result,), _) = asyncio.run(service.caption(batcher, asked, asked.options(batcher.captioner), long_side=long_side))
    service.close()
    assert len(taken) == 1 and taken[0] >= 3 * 3000 * 1500
    assert result.picture.open().size == (long_side, long_side // 2)
    assert (result.picture.frame.width, result.picture.frame.height) == (3000, 1500)


def test_requests_without_a_place_in_a_queue_are_being_received(model: Path) -> None:
    service = Service(ServiceSettings(models=(str(model),)), ServiceMetrics())
    service.start()
    batcher = service.batcher(None)
    assert not batcher.coming()
    service.requests = 2
    with batcher.reserve(1):
        assert batcher.coming()
        with batcher.reserve(1):
            assert not batcher.coming()  # a single client waits for nobody
    service.close()


def test_the_package_for_sentences_is_loaded_before_the_first_request(model: Path) -> None:
    """Its import takes a second, in which the event loop would answer nobody."""
    code = (
        "import sys; from captioner.serve.service import Service, ServiceMetrics, ServiceSettings;"
        "service = Service(ServiceSettings(models=(sys.argv[1],)), ServiceMetrics()); service.start();"
        "sys.exit(not service.ready or 'nltk' not in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(model)], check=True, timeout=120)
