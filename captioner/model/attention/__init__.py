"""Attention: small parts that the decoder combines. The settings choose one of each kind.

scores         how well a cell fits the state: additive, dot, scaled_dot, general, cosine, gaussian
normalizers    from scores to weights that sum to 1: softmax, entmax15, sparsemax
heads          one context vector, or several that are mixed
location       whether attention weights depend on the scores alone, or also on where earlier words attended
cell_sampling  from attention weights to a context vector: the expectation, or one sampled cell
gate           how much of the context vector counts
sentinel       one more cell, which is not in the picture
pool           all annotations as one vector, for the first state
output         what one step of attention returns

A part that does nothing is a part as well (NoGate, NoSentinel), so the decoder calls them all without branches. When
attention runs (before the LSTM, after it, or both) is decided in `Decoder.recurrence`. docs/attention.md compares the
parts.
"""
