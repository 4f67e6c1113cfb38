"""Evidence: what the words of a caption depended on, beside where the model looked.

blurring        the picture with some cells replaced by a blurred version of themselves, or by its mean color
occlusion       how much less likely each word becomes when a part of the picture is blurred
curves          deletion and insertion: a word's probability while the picture is blurred or uncovered cell by cell
word_evidence   all of it for the words of a caption
"""
