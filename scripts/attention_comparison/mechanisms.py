"""The attention mechanisms that are compared, as settings of `model`."""

from __future__ import annotations

TRANSFORMER = ("decoder=transformer", "layers=2", "attention.score=scaled_dot", "attention.heads=4")
# The first one has the default settings; each of the others changes something.
MECHANISMS: dict[str, tuple[str, ...]] = {
    "soft": (),
    "hard": ("attention.mode=hard",),
    "gumbel": ("attention.mode=gumbel",),
    "dot": ("attention.score=dot",),
    "scaled_dot": ("attention.score=scaled_dot",),
    "general": ("attention.score=general",),
    "cosine": ("attention.score=cosine",),
    "gaussian": ("attention.score=gaussian",),
    "gaussian_learned": ("attention.score=gaussian", "attention.learn_width=true"),
    "heads": ("attention.heads=4",),
    "ntm": ("attention.location=ntm",),
    "coverage": ("attention.location=coverage",),
    "ntm_coverage": ("attention.location=both",),
    "after": ("attention.attend=after",),
    "before_and_after": ("attention.attend=both",),
    "sentinel": ("attention.sentinel=true",),
    "pool": ("pool=attention",),
    "positions": ("grid_encoder=positions",),
    "lstm_context": ("grid_encoder=lstm",),
    "self_attention": ("grid_encoder=self_attention",),
    "two_layers": ("layers=2",),
    "transformer": (*TRANSFORMER, "attention.gate=false"),
}
SAMPLING = ("hard", "gumbel")  # scored twice: with the expectation, as all others, and with the most likely cell alone
TWO_SEEDS = ("soft", "hard", "transformer")  # trained twice, to show how much a score depends on the seed
