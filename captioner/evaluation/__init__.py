"""Evaluation: a model captions a split, and everything about the captions and their maps is measured.

subject    the model: a bundle or a training run
data       the split, its boxes, the training captions
sources    annotations, from pictures or the feature cache
protocol   caption, score, measure
tables     the outcome for a terminal and as JSON
pages      the outcome as a page
"""
