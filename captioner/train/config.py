"""Configs: YAML validated by pydantic models whose fields carry their documentation, `--set a.b=c` on top."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import yaml
from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic.fields import FieldInfo

from captioner.errors import UsageError, nearest
from captioner.model.renames import current_setting, current_settings
from captioner.model.settings import EncoderSettings, ModelSettings, Settings
from captioner.options import SearchOptions

# Validation's defaults where they differ from those of SearchOptions.
SEARCH_DEFAULTS: dict[str, Any] = {"length_power": 0.7}


class SourceSettings(Settings):
    """One file or folder of captions with its images."""

    captions: Path = Field(description="Captions file or folder, relative to `data.root`.")
    images: Path | None = Field(None, description="Folder of the images; absent: beside the captions.")
    format: str | None = Field(None, description="Format of the captions; absent: detected from the content.")
    split: str | None = Field(None, description="Take this split only; absent: all of the source.")
    restval: bool = Field(False, description="Karpathy's `restval` counts as `train`.")


class DataSettings(Settings):
    """Where captions and images are, and which words are learnt."""

    root: Path = Field(Path("data"), description="Paths below are relative to it; `~` is expanded.")
    train: tuple[SourceSettings, ...] = Field(description="Sources of the training split, combined.")
    val: tuple[SourceSettings, ...] = Field(description="Sources of the validation split.")
    minimum_count: int = Field(5, ge=1, description="A word is learnt when the training captions hold it this often.")
    max_length: int = Field(20, ge=2, description="Longer training captions are cut after so many words.")
    allow_missing: bool = Field(False, description="Go on without images that are listed but missing.")


class FeatureSettings(Settings):
    """The cache of the trunk's outputs."""

    folder: Path = Field(Path("cache"), description="Where caches are kept, one folder an encoder.")
    flip: bool = Field(False, description="Cache the mirror image as a second view and train on both.")
    batch: int = Field(16, ge=1, description="Images encoded at a time.")
    shard: int = Field(1024, ge=1, description="Images a shard; what an interruption can lose.")


class OptimizerSettings(Settings):
    """How gradients move the weights."""

    name: Literal["adam", "adamw", "rmsprop"] = Field("adamw", description="torch's, with its own defaults otherwise.")
    learning_rate: float = Field(5e-4, gt=0, description="Of the decoder, where the schedule's factor is 1.")
    weight_decay: float = Field(0.0, ge=0, description="Decoupled in AdamW, added to the gradient in the others.")
    betas: tuple[float, float] = Field((0.9, 0.98), description="Of Adam and AdamW.")
    clip: float | None = Field(1.0, gt=0, description="Largest norm of the gradient; absent: no clipping.")


class ScheduleSettings(Settings):
    """How the learning rate changes as training goes on."""

    name: Literal["constant", "cosine", "plateau"] = Field(
        "cosine",
        description="After the warm-up: the same rate, half a cosine down to `floor` at the last step, or steps down "
        "when the score stands still.",
    )
    warmup: int = Field(500, ge=0, description="Steps of linear warm-up.")
    floor: float = Field(0.05, ge=0, le=1, description="Cosine ends at this share of the learning rate.")
    factor: float = Field(0.5, gt=0, lt=1, description="Plateau multiplies the rate by this.")
    patience: int = Field(1, ge=0, description="Plateau waits for so many validations without a better score.")


class ScheduledSamplingSettings(Settings):
    """Feed the model its own last word with a probability that grows epoch by epoch (Bengio et al. 2015)."""

    start_epoch: int = Field(0, ge=0, description="True words alone before (the first epoch is 0).")
    increase: float = Field(
        0.0, ge=0, le=1, description="Added to the probability each epoch from `start_epoch` on; 0: no sampling."
    )
    maximum: float = Field(0.25, ge=0, le=1, description="The probability grows no further than this.")


class HardSettings(Settings):
    """The objective of hard attention; see captioner.model.loss for the reductions."""

    reward: float = Field(1.0, ge=0, description="lambda_r: weight of the score-function term.")
    entropy: float = Field(0.002, ge=0, description="lambda_e: weight of the entropy bonus.")
    baseline: float = Field(0.9, ge=0, lt=1, description="Decay of the moving-average baseline.")
    expected: float = Field(
        0.5, ge=0, le=1, description="Share of rows that use the expectation in place of a sample; gumbel's too."
    )


class TuneSettings(Settings):
    """Fine-tuning of the encoder's tail."""

    start_epoch: int = Field(0, ge=0, description="The tail is frozen before (the first epoch is 0).")
    learning_rate: float = Field(0.2, gt=0, description="As a multiple of the decoder's.")
    from_stage: str | None = Field(None, description="First stage that learns; absent: the whole tail.")
    depthwise: bool = Field(
        True,
        description="Depthwise convolutions learn too; they are few weights, and on a CPU 3 to 11 % of a step's time.",
    )


class RewardSettings(Settings):
    """What a sampled caption is worth: a sum of scores against the image's training captions, times these weights."""

    cider: float = Field(
        1.0, ge=0, description="Weight of CIDEr-D in the reward (1.05 is what the field prints as 105)."
    )
    bleu: float = Field(0.0, ge=0, description="Weight of the caption's own BLEU-4, smoothed, 0 to 1.")
    meteor: float = Field(0.0, ge=0, description="Weight of METEOR without its table of paraphrases, 0 to 1.")

    @model_validator(mode="after")
    def _is_something(self) -> RewardSettings:
        if not (self.cider or self.bleu or self.meteor):
            raise ValueError("one of the weights must be above 0")
        return self


class SelfCriticalSettings(Settings):
    """Self-critical sequence training (Rennie et al. 2017): sampled captions, rewarded by CIDEr-D unless told."""

    start_epoch: int = Field(ge=0, description="Cross-entropy before, self-critical from this epoch on.")
    samples: int = Field(5, ge=1, description="Sampled captions an image.")
    baseline: Literal["greedy", "leave_one_out"] = Field(
        "leave_one_out",
        description="What a reward is compared with: the greedy caption, or the image's other samples.",
    )
    reward: RewardSettings = Field(default_factory=lambda: RewardSettings())
    learning_rate: float = Field(5e-5, gt=0, description="Of the decoder in this stage, constant after warm-up.")
    temperature: float = Field(1.0, gt=0, description="Of the sampling; above 1 the samples are more varied.")
    max_length: int = Field(18, ge=2, description="Sampled captions end after so many words.")
    references: int = Field(1, ge=1, description="Leave out images with fewer captions: their rewards are noise.")
    dropout: bool = Field(False, description="Read the sampled captions with dropout; the sampling has none.")

    @model_validator(mode="after")
    def _has_others(self) -> SelfCriticalSettings:
        if self.baseline == "leave_one_out" and self.samples < 2:
            raise ValueError("the leave_one_out baseline needs samples >= 2")
        return self


class ValidationSettings(Settings):
    """Free-running: captions are generated and scored against raw references."""

    every: int = Field(1, ge=1, description="Epochs between validations.")
    images: int | None = Field(1000, ge=1, description="Validate on the first so many; absent: all.")
    search: SearchOptions = Field(
        default_factory=lambda: SearchOptions(**SEARCH_DEFAULTS),
        description="How captions are searched for, here and by the exported model.",
    )
    batch: int = Field(32, ge=1, description="Images captioned at a time.")
    score: Literal["CIDEr", "BLEU-4"] = Field("CIDEr", description="What `best/` and early stopping follow.")
    patience: int | None = Field(None, ge=1, description="Stop after so many validations without a better score.")
    samples: int = Field(4, ge=0, description="Captions logged with their attention each time.")

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
    """The loop."""

    epochs: int = Field(10, ge=1, description="Each sees every training image once.")
    images: int = Field(32, ge=1, description="B: images a step (over all processes).")
    captions: int = Field(5, ge=1, description="K: captions of each image a step, sampled anew each epoch.")
    accumulate: int = Field(1, ge=1, description="Steps whose gradients are added before the weights move.")
    limit: int | None = Field(None, ge=1, description="Train on the first so many images only.")
    optimizer: OptimizerSettings = Field(default_factory=lambda: OptimizerSettings())
    schedule: ScheduleSettings = Field(default_factory=lambda: ScheduleSettings())
    label_smoothing: float = Field(0.0, ge=0, lt=1, description="Share of the target spread over all words.")
    doubly_stochastic: float = Field(1.0, ge=0, description="lambda of the doubly stochastic regulariser.")
    scheduled_sampling: ScheduledSamplingSettings = Field(default_factory=lambda: ScheduledSamplingSettings())
    hard: HardSettings = Field(default_factory=lambda: HardSettings())
    tune: TuneSettings = Field(default_factory=lambda: TuneSettings())
    scst: SelfCriticalSettings | None = Field(None, description="The self-critical stage; absent: none.")
    ema: float | None = Field(None, gt=0, lt=1, description="Decay of the moving average of the weights; absent: none.")
    precision: Literal["float32", "bfloat16", "float16"] = Field("float32", description="Autocast type.")
    compile: bool = Field(False, description="torch.compile the decoder.")
    start_from: Path | None = Field(None, description="Weights of a run or bundle to begin with.")
    checkpoint_every: int = Field(500, ge=1, description="Steps between checkpoints.")
    augment: bool = Field(True, description="Fine-tuning from pixels: random crops and mirror images.")
    crop: float = Field(
        1.0,
        gt=0,
        le=1,
        description="Cached grids are trained on in random parts of at least this share of each side; 1: whole. Pixels "
        "have `augment` instead.",
    )
    threads: int | None = Field(None, ge=1, description="torch's threads; absent: its default.")
    validation: ValidationSettings = Field(default_factory=lambda: ValidationSettings())


class Config(Settings):
    """Everything that decides a training run."""

    name: str = Field("captioner", pattern=r"^[\w.-]+$", description="The run's folder is runs/NAME unless told.")
    seed: int = Field(0, ge=0, description="Of first weights, order, sampled captions and dropout.")
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
                f"{self.training.scheduled_sampling.increase}: it reads whole captions at once and can't be fed its "
                "own last words; set training.scheduled_sampling.increase=0"
            )
        if self.training.crop < 1 and (fixed := _of_one_grid(self.model)):
            raise ValueError(
                f"training.crop={self.training.crop} clashes with {fixed}: it is made for a grid of one size; "
                "set training.crop=1"
            )
        return self

    def path(self, relative: Path) -> Path:
        """A path of the data section, below `data.root` unless absolute."""
        return self.data.root.expanduser() / relative.expanduser()


def _of_one_grid(model: ModelSettings) -> str | None:
    """The setting that ties a decoder to the rows and columns of whole pictures, if one does."""
    if model.grid_encoder in {"positions", "self_attention"}:
        return f"model.grid_encoder={model.grid_encoder}"
    location = model.attention.location
    return f"model.attention.location={location}" if location in {"ntm", "both"} else None


def load(path: Path, changes: Sequence[str] = ()) -> Config:
    """A config file with `a.b=c` changes on top."""
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"--config: no such file: {path}") from None
    except OSError as error:
        raise UsageError(f"--config: {path} cannot be read ({error.strerror})") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not YAML: {error}") from None
    if not isinstance(raw, dict):
        raise UsageError(f"{path} holds no settings; see configs/default.yaml")
    raw = current_settings(raw)
    for change in changes:
        _apply(raw, change)
    return parse(raw, str(path))


def parse(raw: dict[str, Any], where: str) -> Config:
    """Validated settings; every mistake is named with its key, the nearest key or what is allowed."""
    try:
        return Config.model_validate(current_settings(raw))
    except ValidationError as error:
        lines = [_explain(problem) for problem in error.errors()]
        raise UsageError(f"{where}: " + "; ".join(lines)) from None


def dump(config: Config) -> str:
    """The resolved config as YAML, every default spelt out."""
    text: str = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    return text


def _apply(raw: dict[str, Any], change: str) -> None:
    """Make one `a.b=c` change; a number in the key is a place in a list."""
    key, equals, text = change.partition("=")
    if not equals or not key:
        raise UsageError(f"--set takes key=value, such as training.epochs=3, not {change!r}")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        raise UsageError(f"--set {change}: {text!r} is not a YAML value; quote it, as in {key}='\"…\"'") from None
    *parents, last = current_setting(key).split(".")
    place: Any = raw
    for part in parents:
        at = _at(place, part, change)
        if isinstance(place, dict) and place.get(part) is None:  # a section the file leaves out, or sets to null
            place[part] = {}
        place = place[at]
        if not isinstance(place, (dict, list)):
            raise UsageError(f"--set {change}: {part!r} is a value, not a section")
    place[_at(place, last, change)] = value


def _at(place: Any, part: str, change: str) -> str | int:
    """A key of a section as it is; a key of a list as the number it must be."""
    if isinstance(place, dict):
        return part
    if not part.isdecimal() or int(part) >= len(place):
        raise UsageError(f"--set {change}: {part!r} is no place of this list, which has 0 to {len(place) - 1}")
    return int(part)


def _explain(problem: Any) -> str:
    place = [str(part) for part in problem["loc"]]
    key = ".".join(place)
    if problem["type"] == "extra_forbidden":
        known = _keys(place[:-1])
        elsewhere = [path for path, _ in fields() if path.rpartition(".")[2] == place[-1] and ".search." not in path]
        close = elsewhere or nearest(place[-1], known)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        return f"unknown key {key!r}.{hint} Known here: {', '.join(known)}"
    if problem["type"] == "missing":
        return f"{key} is missing"
    message = problem["msg"].removeprefix("Value error, ")
    message = message[0].lower() + message[1:]
    if problem["type"] == "value_error":  # of settings that don't fit each other: the sentence names them
        return f"{key or 'config'}: {message}"
    if problem["type"] == "model_type":
        below = ", ".join(_keys(place))
        return f"{key or 'config'}: needs settings below it ({below}), got {problem.get('input')!r}"
    close = nearest(str(problem["input"]), _choices(problem)) if problem["type"] == "literal_error" else []
    hint = f". Did you mean {close[0]!r}?" if close else ""
    return f"{key or 'config'}: {message}, got {problem.get('input')!r}{hint}"


def _choices(problem: Any) -> list[str]:
    """What a setting that takes one of several words takes, of pydantic's sentence: 'soft', 'hard' or 'gumbel'."""
    return re.findall(r"'([^']*)'", problem["ctx"]["expected"])


def _keys(place: list[str]) -> list[str]:
    """The known keys of a section, by its path."""
    section: type[Settings] = Config
    for part in place:
        if not part.isdecimal():
            section = _section(section.model_fields[part].annotation) or section
    return list(section.model_fields)


def fields(section: type[Settings] = Config, path: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Every setting that has a value of its own, by its path; `N` stands for a place in a list."""
    for name, field in section.model_fields.items():
        inner = _section(field.annotation)
        if field.annotation is SearchOptions:
            yield from _search_fields(field, f"{path}{name}.")
        elif inner is None:
            yield path + name, field
        else:
            many = get_origin(field.annotation) is tuple
            yield from fields(inner, f"{path}{name}.N." if many else f"{path}{name}.")


def _search_fields(section: FieldInfo, path: str) -> Iterator[tuple[str, FieldInfo]]:
    """The fields of SearchOptions as pydantic describes fields."""
    defaults = section.get_default(call_default_factory=True)
    types = get_type_hints(SearchOptions)
    for option in dataclasses.fields(SearchOptions):
        declared = Field(
            getattr(defaults, option.name),
            description=option.metadata["description"],
            ge=option.metadata["least"],
            le=option.metadata["most"],
        )
        yield path + option.name, FieldInfo.from_annotated_attribute(types[option.name], declared)


def _section(annotation: Any) -> type[Settings] | None:
    """The section that a field's type holds: itself, or inside an optional or a list."""
    if isinstance(annotation, type) and issubclass(annotation, Settings):
        return annotation
    return next((found for each in get_args(annotation) if (found := _section(each))), None)
