"""Places: when a step looks.

    before  z_t from h_{t-1}; it enters the LSTM and the output layer (Xu et al. 2015)
    after   z_t from h_t; it enters the output layer alone (Luong et al. 2015; Lu et al. 2017)
    both    one of each: the first enters the LSTM, the second the output layer; the word's map is their mean,
            and addressing by location remembers both

`look` makes a context z, the state with what addressing remembers, and a glance from a state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from captioner.model.attention.core import Glance

Tensors = dict[str, Tensor]


Looked = tuple[Tensor, Tensors, Glance]
Look = Callable[[Tensors], Looked]


class Before:
    """Look, then move the LSTM."""

    contexts = 1  # that enter the LSTM

    def before(self, look: Look, own: Tensors) -> tuple[list[Tensor], Tensors, Looked | None]:
        """What enters the LSTM beside the word, the state, and the look itself."""
        looked = look(own)
        return [looked[0]], looked[1], looked

    def after(self, look: Look, own: Tensors, earlier: Looked | None) -> Looked:
        """What enters the output layer, given the look from before the LSTM moved."""
        assert earlier is not None
        return earlier[0], own, earlier[2]


class After(Before):
    """Move the LSTM, then look."""

    contexts = 0

    def before(self, look: Look, own: Tensors) -> tuple[list[Tensor], Tensors, Looked | None]:
        return [], own, None

    def after(self, look: Look, own: Tensors, earlier: Looked | None) -> Looked:
        return look(own)


class Both(Before):
    """Look, move the LSTM, look again."""

    def after(self, look: Look, own: Tensors, earlier: Looked | None) -> Looked:
        assert earlier is not None
        z, own, second = look(own)
        first = earlier[2]
        mean = replace(second, alpha=(first.alpha + second.alpha) / 2, gate=(first.gate + second.gate) / 2)
        return z, own, mean


PLACES: dict[str, Before] = {"before": Before(), "after": After(), "both": Both()}
