"""Captions as files: lines of text, JSON or CSV, COCO results, and one text file beside each photo.

Every caption is written completely before the next one begins, so a stopped run loses nothing. `caption_outputs` opens
an output and finds what an earlier run has already written to it.
"""
