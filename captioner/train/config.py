"""The settings of a training run, with their defaults, limits and descriptions (also in docs/settings.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from captioner.errors import UsageError
from captioner.model.settings import EncoderSettings, ModelSettings, Settings
from captioner.options import SearchOptions
from captioner.train.loss_settings import (
    CellCategorySettings,
    GroundingSettings,
    HardSettings,
    ScheduledSamplingSettings,
    SelfCriticalSettings,
)

# The defaults of validation that differ from those of SearchOptions.
SEARCH_DEFAULTS: dict[str, Any] = {"length_power": 0.7}


class SourceSettings(Settings):
    """One file or folder of captions with its images."""

    captions: Path = Field(description="Captions file or folder, relative to `data.root`.")
    images: Path | None = Field(
        None, description="Folder of the images, relative to `data.root`. If absent, it is found next to the captions."
    )
    format: str | None = Field(None, description="Format of the captions. If absent, it is detected from the content.")
    split: str | None = Field(None, description="Use only this split. If absent, the whole source is used.")
    restval: bool = Field(False, description="Count Karpathy's `restval` split as `train`.")


def _kind_of_validation(value: Any) -> str:
    return "share" if isinstance(value, (int, float)) else "sources"


# Tags of the two kinds, which pydantic puts into the paths of errors.
VALIDATION_TAGS = ("share", "sources")
Validation = Annotated[
    Annotated[float, Field(gt=0, lt=1), Tag("share")] | Annotated[tuple[SourceSettings, ...], Tag("sources")],
    Discriminator(_kind_of_validation),
]


class DataSettings(Settings):
    """The captions and images, and the words of the vocabulary."""

    root: Path = Field(Path("data"), description="Folder that the paths below are relative to. `~` is expanded.")
    train: tuple[SourceSettings, ...] = Field(description="Sources of the training split. Several are combined.")
    val: Validation = Field(
        description="Sources of the validation split, or a share of the training images, such as 0.1, that is split "
        "off by picture. The seed decides which, and the run folder records them in split.json."
    )
    boxes: tuple[Path, ...] = Field(
        (),
        description="Files with the boxes of objects in the training images, in COCO's instances format (.json or "
        ".json.gz), with phrases and their boxes where it has them (Flickr30k Entities), relative to `data.root`. "
        "`training.grounding`, `training.cell_categories` and `training.scst.reward.objects` read them.",
    )
    minimum_count: int = Field(
        5, ge=1, description="Occurrences in the training captions that a word needs to be in the vocabulary."
    )
    max_length: int = Field(20, ge=2, description="Most words of a training caption. Longer captions are cut.")
    allow_missing: bool = Field(
        False, description="Train without images that are listed but missing, instead of stopping."
    )
    shuffle: bool = Field(
        False,
        description="Put the images of each split into a random order, which the seed decides. Then `training.limit` "
        "and `training.validation.images` take a random choice instead of the first ones of the source.",
    )


class FeatureSettings(Settings):
    """The feature cache: the outputs of the encoder's frozen trunk."""

    folder: Path = Field(Path("cache"), description="Folder of the caches, with one subfolder per encoder.")
    flip: bool = Field(False, description="Cache the mirror image too, and train on both.")
    batch: int = Field(16, ge=1, description="Images encoded per batch.")
    shard: int = Field(1024, ge=1, description="Images per shard. An interruption loses at most one shard.")


class OptimizerSettings(Settings):
    """How gradients update the weights."""

    name: Literal["adam", "adamw", "rmsprop"] = Field(
        "adamw", description="Optimizer of torch. Settings that are not listed here have torch's defaults."
    )
    learning_rate: float = Field(5e-4, gt=0, description="Learning rate of the decoder, before the schedule's factor.")
    weight_decay: float = Field(
        0.0, ge=0, description="Weight decay: decoupled in AdamW, added to the gradient in Adam and RMSprop."
    )
    betas: tuple[float, float] = Field((0.9, 0.98), description="Betas of Adam and AdamW.")
    clip: float | None = Field(
        1.0, gt=0, description="Norm that gradients are clipped to. If absent, they are not clipped."
    )


class ScheduleSettings(Settings):
    """How the learning rate changes during training."""

    name: Literal["constant", "cosine", "plateau"] = Field(
        "cosine",
        description="After the warm-up: a constant rate, half a cosine down to `floor` at the last step, or steps down "
        "when the validation score stops rising (plateau).",
    )
    warmup: int | float = Field(
        0.05, ge=0, description="Linear warm-up: a number of steps, or, below 1, a share of the steps of the run."
    )
    floor: float = Field(0.05, ge=0, le=1, description="Cosine: the rate at the end, as a share of the learning rate.")
    factor: float = Field(0.5, gt=0, lt=1, description="Plateau: the factor of each step down.")
    patience: int = Field(1, ge=0, description="Plateau: validations without a better score before a step down.")


class TuneSettings(Settings):
    """Fine-tuning of the encoder's tail."""

    start_epoch: int = Field(0, ge=0, description="First epoch in which the tail is trained. Epochs count from 0.")
    end_epoch: int | None = Field(
        None,
        ge=0,
        description="First epoch in which nothing of the encoder is trained, neither tail nor pyramid: it keeps its "
        "weights (the averaged ones with `training.ema`), and steps are faster. 0: never trained. If absent, it is "
        "trained to the end.",
    )
    learning_rate: float = Field(0.2, gt=0, description="Learning rate of the tail, as a multiple of the decoder's.")
    from_stage: str | None = Field(
        None, description="First stage that is trained. If absent, the whole tail is trained."
    )
    depthwise: bool = Field(
        True,
        description="Train depthwise convolutions too. They have few weights, but take 3 to 11 % of a step on a CPU.",
    )

    def trains_tail(self, epoch: int) -> bool:
        """Whether the tail is trained in an epoch."""
        return epoch >= self.start_epoch and not self.has_ended(epoch)

    def has_ended(self, epoch: int) -> bool:
        """Whether the encoder is no longer trained."""
        return self.end_epoch is not None and epoch >= self.end_epoch


class ValidationSettings(Settings):
    """Validation: captions are generated and scored against the raw references."""

    every: int = Field(1, ge=1, description="Epochs between validations.")
    images: int | None = Field(
        1000, ge=1, description="Validate on this many images, the first ones (see `data.shuffle`). If absent, on all."
    )
    search: SearchOptions = Field(
        default_factory=lambda: SearchOptions(**SEARCH_DEFAULTS),
        description="How captions are searched for in validation, and by the exported model.",
    )
    batch: int = Field(32, ge=1, description="Images captioned per batch.")
    score: Literal["CIDEr", "BLEU-4"] = Field(
        "CIDEr", description="Score that selects the best model and stops training early."
    )
    patience: int | None = Field(
        None, ge=1, description="Stop after this many validations without a better score. If absent, never."
    )
    samples: int = Field(4, ge=0, description="Captions that each validation logs with their attention maps.")

    @field_validator("search", mode="before")
    @classmethod
    def _search_options(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        try:
            return SearchOptions.from_json({**SEARCH_DEFAULTS, **value})
        except UsageError as error:
            raise ValueError(str(error)) from None


class TrainingSettings(Settings):
    """The training loop."""

    epochs: int = Field(
        0,
        ge=0,
        description="Passes over the training images. 0: as many as make about 1,000 steps, at least 10, at most 40.",
    )
    images: int = Field(
        0,
        ge=0,
        description="B: images per step, over all processes together. 0: 32, or 8 below 1,000 training images.",
    )
    captions: int = Field(5, ge=1, description="K: captions per image in a step. They are sampled again each epoch.")
    accumulate: int = Field(1, ge=1, description="Steps whose gradients are added up before the weights are updated.")
    limit: int | None = Field(
        None,
        ge=1,
        description="Train only on this many images, the first ones (see `data.shuffle`). If absent, on all.",
    )
    optimizer: OptimizerSettings = Field(default_factory=lambda: OptimizerSettings())
    schedule: ScheduleSettings = Field(default_factory=lambda: ScheduleSettings())
    label_smoothing: float = Field(
        0.0, ge=0, lt=1, description="Share of the target probability that is spread over all words."
    )
    word_dropout: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Share of the input words that are replaced by the unknown word, so that the model relies less on "
        "them and more on the picture. The words that it has to predict stay.",
    )
    doubly_stochastic: float = Field(
        0.0,
        ge=0,
        description="lambda: weight of the doubly stochastic regularization. The paper has 1; on small grids that is "
        "more than half of the loss. It makes the maps uniform.",
    )
    scheduled_sampling: ScheduledSamplingSettings = Field(default_factory=lambda: ScheduledSamplingSettings())
    hard: HardSettings = Field(default_factory=lambda: HardSettings())
    tune: TuneSettings = Field(default_factory=lambda: TuneSettings())
    grounding: GroundingSettings | None = Field(
        None, description="Train attention with the boxes of `data.boxes`. If absent, boxes do not train attention."
    )
    cell_categories: CellCategorySettings | None = Field(
        None, description="Train the annotations with the categories of `data.boxes`. If absent, there is no such head."
    )
    scst: SelfCriticalSettings | None = Field(None, description="The self-critical stage. If absent, there is none.")
    ema: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="Decay of the moving average of the weights (EMA). If absent, there is no average.",
    )
    precision: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "float32",
        description="Number type of autocast (mixed precision). `auto` is bfloat16 where the processor multiplies in "
        "it, otherwise float32; the run folder's config has the one that was chosen.",
    )
    compile: bool = Field(False, description="Compile the model with torch.compile.")
    start_from: Path | None = Field(
        None,
        description="Name of a model, or folder of a run or bundle (`./mine` in the current folder), whose weights "
        "training starts from. If absent, they are random.",
    )
    checkpoint_every: int = Field(500, ge=1, description="Steps between checkpoints.")
    augment: bool = Field(True, description="When training from pixels: random crops and mirror images.")
    crop: float = Field(
        1.0,
        gt=0,
        le=1,
        description="Train on random parts of the cached grids, at least this share of each side. 1 trains on whole "
        "grids. For pixels see `augment`.",
    )
    threads: int | None = Field(None, ge=1, description="Threads of torch. If absent, torch decides.")
    validation: ValidationSettings = Field(default_factory=lambda: ValidationSettings())

    @field_validator("start_from", mode="before")
    @classmethod
    def _folder_stays_a_folder(cls, value: Any) -> Any:
        """`./mine` as an absolute path, because a Path forgets the dot and would be the name of a model."""
        if isinstance(value, str) and len(Path(value).parts) == 1 and Path(value).name != value:
            return Path(value).expanduser().absolute()
        return value


class Config(Settings):
    """All settings of a training run."""

    name: str = Field(
        "captioner",
        pattern=r"^[\w.-]+$",
        description="Name of the run. Its folder is runs/NAME, unless --run names another.",
    )
    seed: int = Field(
        0, ge=0, le=2**63 - 1, description="Seed for initial weights, order of images, sampling and dropout."
    )
    data: DataSettings
    encoder: EncoderSettings = Field(default_factory=lambda: EncoderSettings())
    features: FeatureSettings = Field(default_factory=lambda: FeatureSettings())
    model: ModelSettings = Field(default_factory=lambda: ModelSettings())
    training: TrainingSettings = Field(default_factory=lambda: TrainingSettings())

    @model_validator(mode="after")
    def _can_be_trained(self) -> Config:
        if self.model.decoder == "transformer" and self.training.scheduled_sampling.increase:
            raise ValueError(
                "model.decoder=transformer clashes with training.scheduled_sampling.increase="
                f"{self.training.scheduled_sampling.increase}: a Transformer reads whole captions at once and can't be "
                "fed its own last words; set training.scheduled_sampling.increase=0"
            )
        hard, mode = self.training.hard, self.model.attention.mode
        if hard.temperature is not None and mode == "soft":
            raise ValueError(
                "training.hard.temperature clashes with model.attention.mode=soft: nothing would read it; leave it out "
                "or set model.attention.mode=hard"
            )
        if hard.samples > 1 and mode != "hard":
            raise ValueError(
                f"training.hard.samples={hard.samples} clashes with model.attention.mode={mode}: only hard attention "
                "learns from several samples; set training.hard.samples=1 or model.attention.mode=hard"
            )
        if self.training.cell_categories and self.training.tune.end_epoch == 0:
            raise ValueError(
                "training.cell_categories clashes with training.tune.end_epoch=0: the head is there to train the "
                "encoder; leave one of them out"
            )
        if (names := self.uses_of_boxes) and not self.data.boxes:
            raise ValueError(f"{names[0]} needs boxes; set data.boxes")
        if self.training.crop < 1 and (setting := _needs_whole_grids(self.model)):
            raise ValueError(
                f"training.crop={self.training.crop} clashes with {setting}, which needs grids of one size; "
                "set training.crop=1"
            )
        return self

    @property
    def uses_of_boxes(self) -> list[str]:
        """The settings that train with the boxes of `data.boxes`."""
        training = self.training
        uses = {
            "training.grounding": training.grounding is not None,
            "training.cell_categories": training.cell_categories is not None,
            "training.scst.reward.objects": training.scst is not None and training.scst.reward.objects > 0,
            "training.scst.reward.invented": training.scst is not None and bool(training.scst.reward.invented),
        }
        return [name for name, used in uses.items() if used]

    @property
    def decoding(self) -> SearchOptions:
        """The search of validation, and of the exported model.

        A hard-attention model that never saw the expectation in training attends to the likeliest cell, unless the
        settings say otherwise.
        """
        search = self.training.validation.search
        if self.model.attention.mode == "soft" or search.hard_attention is not None:
            return search
        return replace(search, hard_attention="argmax" if self.training.hard.expected == 0 else "expected")

    def path(self, relative: Path) -> Path:
        """A path of the data section: relative to `data.root`, or absolute."""
        return self.data.root.expanduser() / relative.expanduser()


def sized(config: Config, images: int) -> Config:
    """The config with the settings that depend on the number of training images, where they are left to it."""
    training = config.training
    batch = training.images or (32 if images >= 1000 else 8)
    epochs = training.epochs or min(40, max(10, -(-1000 * batch // images)))
    return config.model_copy(update={"training": training.model_copy(update={"images": batch, "epochs": epochs})})


def _needs_whole_grids(model: ModelSettings) -> str | None:
    """The setting that ties the decoder to the rows and columns of whole pictures, if there is one."""
    if model.grid_encoder in {"positions", "self_attention"}:
        return f"model.grid_encoder={model.grid_encoder}"
    location = model.attention.location
    return f"model.attention.location={location}" if location in {"ntm", "both"} else None
