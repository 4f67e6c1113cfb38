"""The Transformer decoder against torch's own layers, and whole captions against single steps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from captioner.errors import CaptionerError
from captioner.model.caption_decoder import expand_state
from captioner.model.self_attention import encode_positions
from captioner.model.settings import ModelSettings
from captioner.model.transformer import TransformerDecoder
from tests.model.test_grid_encoder import copy_attention
from tests.model.tiny_models import make_annotations, make_captions, of_row, with_noise_weights

SIZE = 8


def make_transformer(layers: int = 2, **settings: Any) -> TransformerDecoder:
    sizes = {"annotation_size": SIZE, "embedding_size": SIZE, "hidden_size": SIZE, "dropout": 0.0, "layers": layers}
    attention = {"score": "scaled_dot", "gate": False, "heads": 2}
    model = ModelSettings.model_validate({"decoder": "transformer", "attention": attention, **sizes, **settings})
    made: TransformerDecoder = with_noise_weights(TransformerDecoder(model, 5, 11, (3, 3)))
    return made


def torch_layer(block: Any) -> nn.TransformerDecoderLayer:
    theirs = nn.TransformerDecoderLayer(SIZE, 2, 4 * SIZE, 0.0, batch_first=True, norm_first=True).double()
    copy_attention(block.words, theirs.self_attn)
    copy_attention(block.picture, theirs.multihead_attn)
    for ours, other in (("wide", "linear1"), ("narrow", "linear2")):
        getattr(theirs, other).load_state_dict(getattr(block.feed, ours).state_dict())
    for ours, other in (("words_norm", "norm1"), ("picture_norm", "norm2"), ("feed_norm", "norm3")):
        getattr(theirs, other).load_state_dict(getattr(block, ours).state_dict())
    return theirs


@pytest.mark.parametrize("layers", [1, 3])
def test_logits_equal_those_of_torchs_decoder_layers(layers):
    decoder, annotations = make_transformer(layers), make_annotations(1)
    inputs, targets, lengths = make_captions([[6]])
    forced = decoder(annotations, inputs, targets, lengths)
    times = torch.arange(6, dtype=torch.float64)
    x = decoder.embedding.weight[inputs[0]] + encode_positions(times, SIZE) * (2 / SIZE) ** 0.5
    assert decoder.project is not None
    a = torch.relu(decoder.project(annotations))
    mask = torch.full((6, 6), -torch.inf, dtype=torch.float64).triu(1)
    for block in decoder.blocks:
        x = torch_layer(block)(x, a, tgt_mask=mask)
    torch.testing.assert_close(forced.logits, decoder.output(decoder.norm(x))[0])


def test_the_map_of_one_layer_is_the_mean_of_torchs_heads():
    decoder, annotations = make_transformer(1), make_annotations(1)
    inputs, targets, lengths = make_captions([[4]])
    forced = decoder(annotations, inputs, targets, lengths)
    seen: list[Any] = []
    theirs = torch_layer(decoder.blocks[0])
    assert decoder.project is not None
    a = torch.relu(decoder.project(annotations))
    x = (
        decoder.embedding.weight[inputs[0]]
        + encode_positions(torch.arange(4, dtype=torch.float64), SIZE) * (2 / SIZE) ** 0.5
    )
    normed = theirs.norm1(x)
    x = x + theirs.self_attn(normed, normed, normed, attn_mask=torch.ones(4, 4, dtype=torch.bool).triu(1))[0]
    seen.append(theirs.multihead_attn(theirs.norm2(x), a, a)[1])
    torch.testing.assert_close(forced.alpha, seen[0][0])
    torch.testing.assert_close(forced.alpha.sum(-1), torch.ones(4, dtype=torch.float64))


def test_whole_captions_equal_single_steps_with_the_cache():
    decoder, annotations = make_transformer(grid_encoder="self_attention"), make_annotations(2)
    inputs, targets, lengths = make_captions([[5, 3], [4, 1]])
    forced = decoder(annotations, inputs, targets, lengths)
    shared, own = decoder.begin(annotations)
    own, said, maps = expand_state(own, 2), [], []
    for t in range(5):
        assert own["past"].shape[2] == t
        logits, own, attention = decoder.step(shared, own, inputs[:, :, t])
        said.append(logits)
        maps.append(attention.alpha)
    for row in range(4):
        image, caption = divmod(row, 2)
        count = int(lengths[image, caption])
        expected = torch.stack(said)[:count, image, caption], torch.stack(maps)[:count, image, caption]
        torch.testing.assert_close(of_row(forced, row, forced.logits), expected[0])
        torch.testing.assert_close(of_row(forced, row, forced.alpha), expected[1])
        assert of_row(forced, row, forced.targets).tolist() == targets[image, caption, :count].tolist()


def test_a_word_does_not_depend_on_later_words():
    decoder, annotations = make_transformer(), make_annotations(1)
    inputs, targets, lengths = make_captions([[6]])
    other = inputs.clone()
    other[..., 4:] = 9
    one, two = (decoder(annotations, words, targets, lengths).logits for words in (inputs, other))
    assert torch.equal(one[:4], two[:4])
    assert not torch.allclose(one[4], two[4])


def test_scheduled_sampling_is_refused():
    with pytest.raises(CaptionerError, match="scheduled sampling does not work"):
        make_transformer()(make_annotations(1), *make_captions([[3]]), own_words=0.5)
