"""What a model is made of: the `encoder` and `model` sections of a config, validated and documented."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Settings(BaseModel):
    """A section of a config: unknown keys are refused, values don't change after validation."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


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
    """How the decoder looks at the annotations (Xu et al. 2015, section 4)."""

    mode: Literal["soft", "hard"] = Field("soft", description="`soft`: expectation; `hard`: one sampled place.")
    size: int = Field(256, ge=1, description="A: width of the additive score's hidden layer.")
    gate: bool = Field(True, description="Scale the context by beta_t = sigmoid(f_beta(h)).")
    temperature: float = Field(1.0, gt=0, description="Scores are divided by it before the softmax.")


class ModelSettings(Settings):
    """The LSTM decoder."""

    attention: AttentionSettings = Field(default_factory=AttentionSettings)
    annotation_size: int | None = Field(
        512,
        ge=1,
        description="Project annotations to this width first (a 1x1 convolution and ReLU); absent: as they are.",
    )
    embedding_size: int = Field(512, ge=1, description="m: width of a word's embedding.")
    hidden_size: int = Field(512, ge=1, description="n: width of the LSTM.")
    layers: int = Field(1, ge=1, le=8, description="LSTM layers, with residual connections from the second on.")
    output_word: bool = Field(True, description="Deep output reads E y_{t-1}.")
    output_hidden: bool = Field(True, description="Deep output reads L_h h_t.")
    output_context: bool = Field(True, description="Deep output reads L_z z_t.")
    tied: bool = Field(True, description="The output layer shares the word embedding's matrix.")
    dropout: float = Field(0.5, ge=0, lt=1, description="On the deep output's sum and between LSTM layers.")
    embedding_dropout: float = Field(0.0, ge=0, lt=1, description="On the embedded words.")
    annotation_dropout: float = Field(0.0, ge=0, lt=1, description="On the projected annotations.")

    @model_validator(mode="after")
    def _has_an_output(self) -> ModelSettings:
        if not (self.output_word or self.output_hidden or self.output_context):
            raise ValueError("the deep output needs at least one of output_word, output_hidden, output_context")
        return self
