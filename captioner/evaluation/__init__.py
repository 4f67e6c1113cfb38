"""Evaluation: run a model on a split and judge its captions and its attention.

evaluated_model      the model: a bundle or a training run
evaluation_set       the split, its boxes and the training captions
annotation_sources   annotations, encoded from pictures or read from the feature cache
protocol             caption, score, measure
attention_maps       entropy and movement of the maps
grounding            the maps against boxes of objects; nouns has the words that name them
hallucination        objects that a caption names although they are not there (CHAIR)
reliance             what words relied on, by occlusion, and whether attention shows it
randomisation        whether maps depend on the learned weights
deletion             how much a word's probability falls when the attended cells are blanked
tables               the figures for a terminal and as JSON
report               the figures as a page; charts draws its histograms
"""
