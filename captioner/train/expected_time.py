"""How long a run will take: a few pictures and two steps are measured, the rest is arithmetic."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from captioner.bundle.layout import VOCABULARY
from captioner.bundle.model_folders import start_folder
from captioner.inference.torch_backend import TorchBackend
from captioner.model import loss as objective
from captioner.model.network import Network
from captioner.progress import duration
from captioner.text.vocabulary import Vocabulary
from captioner.train.config import Config, sized
from captioner.train.corpus import Corpus, padded_arrays
from captioner.train.run_folder import model_folder
from captioner.train.setup import tune_tail
from captioner.train.splits import limited, read_splits
from captioner.train.validation import caption

PICTURES = 4  # measured
EXPORT_SECONDS = 20.0
FEWEST_EPOCHS = 3  # with fewer, fewer pictures teach more
VALIDATION_SHARE = 0.25  # of a time that is too short for all pictures
FEWEST_VALIDATED = 50  # the score of fewer pictures tells little
FEWEST_STEPS = 100  # with fewer, a new model learns no language


@dataclass(frozen=True)
class ExpectedTime:
    """Seconds: of the encoding, of each epoch's steps, and of a validation."""

    encoding: float
    steps: tuple[float, ...]  # of each epoch: with a trained tail they take longer
    validation: float
    images: int
    validated: int

    @property
    def epochs(self) -> int:
        return len(self.steps)

    @property
    def total(self) -> float:
        return self.encoding + sum(self.steps) + self.epochs * self.validation + EXPORT_SECONDS

    def sentence(self) -> str:
        shortest, longest = duration(min(self.steps)), duration(max(self.steps))
        return (
            f"about {duration(self.total)}: {duration(self.encoding)} to encode the pictures, then {self.epochs} "
            f"epochs of {shortest if shortest == longest else f'{shortest} to {longest}'}, each with "
            f"{duration(self.validation)} of validation"
        )


def expected_time(config: Config, device: torch.device) -> tuple[Config, ExpectedTime]:
    """The config with the settings that follow the number of pictures, and the time that its run takes here."""
    train, val = read_splits(config)
    train = limited(train, config.training.limit)
    start = config.training.start_from
    known = None if start is None else model_folder(start_folder(start)) / VOCABULARY
    if known is not None and known.is_file():
        vocabulary = Vocabulary.load(known)
    else:
        vocabulary = Vocabulary.build(train.captions(), minimum_count=config.data.minimum_count)
    corpus = Corpus.of(train, vocabulary, config.data.max_length)
    config = sized(config, len(corpus))
    counts = np.minimum(np.diff(corpus.image_starts), config.training.captions)
    length = max(2, round(len(corpus.words) / max(1, len(corpus.caption_starts) - 1)))
    rates = _measure(config, vocabulary, length, device)
    validated = min(len(val), config.training.validation.images or len(val))
    views = 1 + config.features.flip
    tune, captions = config.training.tune, float(counts.sum())
    return config, ExpectedTime(
        encoding=(len(train) + validated) * views * rates.picture,
        steps=tuple(
            captions * (rates.tuned_caption if tune.trains_tail(epoch) else rates.caption)
            for epoch in range(config.training.epochs)
        ),
        validation=validated * rates.validation,
        images=len(train),
        validated=validated,
    )


def within(config: Config, expected: ExpectedTime, seconds: float) -> tuple[Config, ExpectedTime, str | None]:
    """The config with as many epochs as fit into the time, or with fewer pictures, and a sentence about the change."""
    given = f"{seconds / 60:g} {'minute' if seconds == 60 else 'minutes'}"
    left = seconds - EXPORT_SECONDS - expected.encoding
    needed = itertools.accumulate(steps + expected.validation for steps in expected.steps)
    epochs = sum(time <= left for time in needed)
    if epochs == expected.epochs:
        return config, expected, None
    if epochs >= FEWEST_EPOCHS:
        said = f"{epochs} instead of {expected.epochs} epochs, to fit into {given}"
        return _with(config, epochs=epochs), replace(expected, steps=expected.steps[:epochs]), said
    # Fewer pictures, and fewer of them validated: otherwise validation would leave no time for training.
    budget = seconds - EXPORT_SECONDS
    steps = (expected.steps + expected.steps[-1:] * FEWEST_EPOCHS)[:FEWEST_EPOCHS]
    encoded = expected.encoding / (expected.images + expected.validated)
    per_validated = encoded + FEWEST_EPOCHS * expected.validation / expected.validated
    validated = min(expected.validated, max(FEWEST_VALIDATED, int(VALIDATION_SHARE * budget / per_validated)))
    per_image = encoded + sum(steps) / expected.images
    images = int((budget - validated * per_validated) / per_image)
    images = min(expected.images, max(config.training.images, images))
    shorter = replace(
        expected,
        images=images,
        validated=validated,
        encoding=encoded * (images + validated),
        steps=tuple(seconds * images / expected.images for seconds in steps),
        validation=expected.validation * validated / expected.validated,
    )
    chosen = ", chosen at random," if config.data.shuffle and images < expected.images else ""
    said = f"{images:,} of {expected.images:,} pictures{chosen} and {FEWEST_EPOCHS} epochs, "
    if shorter.total > seconds + 1:  # seconds are rounded to pictures
        said += f"which is the least; it takes about {duration(shorter.total)} and does not fit into {given}"
    else:
        said += f"to fit into {given}"
    if validated < expected.validated:
        said += f"; validated on {validated:,} of {expected.validated:,} pictures"
    validation = config.training.validation.model_copy(update={"images": validated})
    return _with(config, epochs=FEWEST_EPOCHS, limit=images, validation=validation), shorter, said


def too_short(config: Config, expected: ExpectedTime) -> str | None:
    """A sentence about a run from scratch that has too few steps to learn anything."""
    steps = expected.epochs * expected.images // max(1, config.training.images)
    if config.training.start_from is not None or steps >= FEWEST_STEPS:
        return None
    return (
        f"a new model learns next to nothing in {steps} steps; give it more --minutes, or start from a model that "
        "knows language: --from default"
    )


def _with(config: Config, **changes: Any) -> Config:
    return config.model_copy(update={"training": config.training.model_copy(update=changes)})


@dataclass(frozen=True)
class _Rates:
    """Seconds per encoded picture, per trained caption (with a frozen and a trained tail), per validated picture."""

    picture: float
    caption: float
    tuned_caption: float
    validation: float


def _measure(config: Config, vocabulary: Vocabulary, length: int, device: torch.device) -> _Rates:
    """Measured with random weights."""
    network = Network(config.encoder, config.model, len(vocabulary), load=False).to(device)
    size, captions = config.encoder.size, config.training.captions
    pixels = torch.zeros(PICTURES, size, size, 3, dtype=torch.uint8, device=device)
    network.eval()
    with torch.inference_mode():
        picture = _seconds(lambda: network.encoder.trunk(pixels), device) / PICTURES
        grids = network.encoder.trunk(pixels).float()
    grids = grids.clone()  # an ordinary tensor, which a backward pass may read
    words = [[[3] * length] * captions] * PICTURES
    batch = [torch.from_numpy(array).to(device) for array in padded_arrays(words, vocabulary)]

    def step() -> None:
        forced = network.decoder(network.annotations(grids), *batch)
        objective.loss(forced, PICTURES * captions).total.backward()  # type: ignore[no-untyped-call]

    network.train()
    tail, tune = tune_tail(config, network), config.training.tune
    is_ever_tuned = bool(tail) and any(tune.trains_tail(epoch) for epoch in range(config.training.epochs))
    trained = []
    for is_tuned in (False, True) if is_ever_tuned else (False,):
        for parameter in tail:
            parameter.requires_grad_(is_tuned)
        trained.append(_seconds(step, device) / (PICTURES * captions))
    network.eval()
    backend = TorchBackend(network, vocabulary, device)
    validation = _seconds(lambda: caption(backend, grids, config.training.validation.search), device) / PICTURES
    return _Rates(picture, trained[0], trained[-1], validation)


def _seconds(work: Any, device: torch.device) -> float:
    """The time of the second call: the first one allocates."""
    seconds = 0.0
    for _ in range(2):
        began = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds = time.perf_counter() - began
    return seconds
