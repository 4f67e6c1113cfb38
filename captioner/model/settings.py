"""What a model is made of: the `encoder` and `model` sections of a config, validated and documented."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Settings(BaseModel):
    """A section of a config: unknown keys and infinite numbers are refused, values don't change after validation."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)


class EncoderSettings(Settings):
    """The CNN that turns a picture into a grid of annotation vectors."""

    name: str = Field("efficientnet_lite0", description="Backbone; a wrong name lists all of them.")
    weights: str = Field(
        "auto",
        description="`auto` (the Lite packages for Lite, torchvision's own for the rest), `none`, `torchvision`, "
        "`package`, or the path of a safetensors file or state dict.",
    )
    size: int = Field(256, ge=32, le=1024, description="Side of the square the picture is squashed to, in pixels.")
    annotations: tuple[str, ...] = Field(
        (),
        description="Stages whose outputs, joined along the channels, are the annotations; a finer grid is averaged "
        "down to the coarsest. Empty: the backbone's usual last stage at `stride`.",
    )
    stride: Literal[16, 32] = Field(32, description="Output stride, where `annotations` is empty.")
    tail: str | None = Field(
        None,
        description="First stage of the tail, which runs with the decoder and can be trained. The trunk before it is "
        "frozen and its output cached. Absent: no tail (the paper's frozen encoder). The backbone's first stage: an "
        "empty trunk, fine-tuning from pixels.",
    )


class AttentionSettings(Settings):
    """How the decoder looks at the annotations (Xu et al. 2015, section 4; docs/attention.md)."""

    mode: Literal["soft", "hard", "gumbel"] = Field(
        "soft",
        description="`soft`: expectation; `hard`: one sampled place, learnt by reward; `gumbel`: one sampled place, "
        "learnt through a straight-through Gumbel-softmax.",
    )
    score: Literal["additive", "dot", "scaled_dot", "general", "cosine", "gaussian"] = Field(
        "additive", description="How well a place fits the state."
    )
    size: int = Field(
        256,
        ge=1,
        description="A: width of queries and keys, of all heads together; the additive score's hidden layer. `dot`, "
        "`general` and the Transformer take other widths.",
    )
    heads: int = Field(1, ge=1, le=64, description="Looks at once, each with its own projections, mixed.")
    location: Literal["none", "ntm", "coverage", "both"] = Field(
        "none",
        description="What a map knows of earlier maps: nothing; the last one, shifted and sharpened (Neural Turing "
        "Machine); the sum of all, as an input to the score; or both.",
    )
    place: Literal["before", "after", "both"] = Field(
        "before",
        description="Look before the LSTM's step (the context enters it), after it (it enters the output layer alone), "
        "or both.",
    )
    gate: bool = Field(True, description="Scale the context by beta_t = sigmoid(f_beta(h)).")
    sentinel: bool = Field(False, description="One more place that is not in the picture (adaptive attention).")
    temperature: float = Field(1.0, gt=0, description="Scores are divided by it before the softmax.")
    width: float = Field(1.0, gt=0, description="Of the gaussian score's kernel.")
    learn_width: bool = Field(False, description="Learn the gaussian score's width, from `width` on.")
    relaxation: float = Field(1.0, gt=0, description="Temperature of gumbel's softmax: lower is nearer to one place.")


class ModelSettings(Settings):
    """The decoder."""

    decoder: Literal["lstm", "transformer"] = Field("lstm", description="What reads the annotations word by word.")
    attention: AttentionSettings = Field(default_factory=AttentionSettings)
    annotation_size: int | None = Field(
        512,
        ge=1,
        description="Project annotations to this width first (a 1x1 convolution and ReLU); absent: as they are.",
    )
    context: Literal["none", "positions", "lstm", "self_attention"] = Field(
        "none",
        description="What annotations pass through then: nothing, two-dimensional position encodings, a bidirectional "
        "LSTM over the grid, or a Transformer encoder.",
    )
    context_layers: int = Field(1, ge=1, le=8, description="Layers of `context: self_attention`.")
    context_heads: int = Field(4, ge=1, le=64, description="Heads of `context: self_attention`.")
    pool: Literal["mean", "attention"] = Field(
        "mean", description="The LSTM's first state: from the mean annotation, or by a learned query's attention."
    )
    embedding_size: int = Field(512, ge=1, description="m: width of a word's embedding.")
    hidden_size: int = Field(512, ge=1, description="n: width of the LSTM, or of the Transformer.")
    layers: int = Field(1, ge=1, le=8, description="Layers; the LSTM's with residual connections from the second on.")
    output_word: bool = Field(True, description="Deep output reads E y_{t-1}.")
    output_hidden: bool = Field(True, description="Deep output reads L_h h_t.")
    output_context: bool = Field(True, description="Deep output reads L_z z_t.")
    tied: bool = Field(True, description="The output layer shares the word embedding's matrix.")
    dropout: float = Field(
        0.5, ge=0, lt=1, description="On the deep output's sum and between layers; in the Transformer, on every part's."
    )
    embedding_dropout: float = Field(0.0, ge=0, lt=1, description="On the embedded words.")
    annotation_dropout: float = Field(
        0.0, ge=0, lt=1, description="On the projected annotations, and in `context: self_attention`."
    )

    @model_validator(mode="after")
    def _fits_together(self) -> ModelSettings:
        if found := list(clashes(self)):
            raise ValueError("; and ".join(found))
        return self


def clashes(model: ModelSettings) -> Iterator[str]:
    """Which settings make no sense together, why, and what would work."""
    size = model.annotation_size
    if not (model.output_word or model.output_hidden or model.output_context):
        yield "the deep output needs at least one of output_word, output_hidden, output_context"
    yield from _idle(model)
    # Where annotations are not projected, their width is the encoder's, and the decoder checks when it is built.
    if model.context == "lstm" and (size or 2) % 2:
        why = "each of its two directions makes half of the width; set an even model.annotation_size"
        yield _clash("context=lstm", f"annotation_size={size}", why)
    if model.context == "self_attention" and (size or model.context_heads) % model.context_heads:
        why = "every head has a part of the width; set a number of heads that divides it"
        yield _clash(f"context_heads={model.context_heads}", f"annotation_size={size}", why)
    yield from _transformer_clashes(model) if model.decoder == "transformer" else _lstm_clashes(model)


def _idle(model: ModelSettings) -> Iterator[str]:
    """Settings that would be read by nobody."""
    a, plain = model.attention, AttentionSettings()
    context = f"context={model.context}"
    read_by: list[tuple[str, object, object, str, str]] = [
        ("attention.learn_width", a.learn_width, False, f"attention.score={a.score}", "attention.score=gaussian"),
        ("attention.width", a.width, plain.width, f"attention.score={a.score}", "attention.score=gaussian"),
        ("attention.relaxation", a.relaxation, plain.relaxation, f"attention.mode={a.mode}", "attention.mode=gumbel"),
        ("context_layers", model.context_layers, 1, context, "context=self_attention"),
        ("context_heads", model.context_heads, 4, context, "context=self_attention"),
    ]
    for name, found, default, given, reader in read_by:
        if found != default and given != reader:
            yield _clash(f"{name}={_said(found)}", given, f"only model.{reader} reads it; set that, or leave it out")


def _clash(one: str, other: str, why: str) -> str:
    return f"model.{one} clashes with model.{other}: {why}"


def _lstm_clashes(model: ModelSettings) -> Iterator[str]:
    a, size = model.attention, model.annotation_size
    heads, mode = f"attention.heads={a.heads}", f"attention.mode={a.mode}"
    if a.heads > 1 and a.mode != "soft":
        why = "it draws one place a word, not one a head; set model.attention.heads=1 or model.attention.mode=soft"
        yield _clash(heads, mode, why)
    if a.place == "both" and a.mode != "soft":
        why = "it draws one place a word, not two; set model.attention.place=before or model.attention.mode=soft"
        yield _clash("attention.place=both", mode, why)
    if a.heads > 1 and a.score == "dot":
        why = "it has no projections for heads to differ in; set model.attention.score=scaled_dot"
        yield _clash(heads, "attention.score=dot", why)
    widths = {"annotation_size": size or a.heads}
    if a.score != "general":  # whose heads are as wide as the state
        widths["attention.size"] = a.size
    for name, width in widths.items():
        if width % a.heads:
            why = "every head has a part of the width; set a number of heads that divides it"
            yield _clash(heads, f"{name}={width}", why)
    if a.score == "dot" and size not in (None, model.hidden_size):
        why = f"it multiplies annotations with states; set model.annotation_size={model.hidden_size}, their width"
        yield _clash("attention.score=dot", f"annotation_size={size}", why)
    if a.place != "before" and not model.output_context:
        why = "nothing would read the context; set model.output_context=true or model.attention.place=before"
        yield _clash(f"attention.place={a.place}", "output_context=false", why)


def _transformer_clashes(model: ModelSettings) -> Iterator[str]:
    a, kind = model.attention, "decoder=transformer"
    needed: list[tuple[str, object, object, str]] = [
        ("attention.score", a.score, "scaled_dot", "its cross-attention is scaled dot products"),
        ("attention.mode", a.mode, "soft", "every head of every layer looks, and none is the word's own"),
        ("attention.location", a.location, "none", "its heads have no last map to go on from"),
        ("attention.place", a.place, "before", "its layers look where they look"),
        ("attention.gate", a.gate, False, "its residual connections do what the gate is for"),
        ("attention.sentinel", a.sentinel, False, "its residual connections let a word look nowhere"),
        ("attention.temperature", a.temperature, 1.0, "its scores are scaled by their width"),
        ("pool", model.pool, "mean", "it has no first state"),
        ("output_word", model.output_word, True, "its state holds the word"),
        ("output_hidden", model.output_hidden, True, "its state is the output"),
        ("output_context", model.output_context, True, "its state holds the context"),
        ("embedding_size", model.embedding_size, model.hidden_size, "words are added to states of model.hidden_size"),
    ]
    for name, found, fitting, why in needed:
        if found != fitting:
            yield _clash(kind, f"{name}={_said(found)}", f"{why}; set model.{name}={_said(fitting)}")
    if model.hidden_size % a.heads:
        why = "every head has a part of the width; set a number of heads that divides it"
        yield _clash(f"attention.heads={a.heads}", f"hidden_size={model.hidden_size}", why)


def _said(value: object) -> str:
    """A value as `--set` takes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
