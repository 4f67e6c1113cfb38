"""The attention family: small parts that the decoder plugs together, each a choice of the config.

scores     how well a place fits the state: additive, dot, scaled_dot, general, cosine, gaussian
heads      one look, or several at once that are mixed
location   from scores to a map: by content alone, or also by where it looked before
draw       from a map to weights: the expectation, one sampled place, or one with a straight-through gradient
place      when to look: before the LSTM's step, after it, or both
gate       how much of the context counts
sentinel   something to look at that is not in the picture
pool       the annotations as one vector, for the first state
context    what annotations tell each other before the decoder reads them

A part that does nothing is a part as well, so that a step has no branches. docs/attention.md compares them.
"""
