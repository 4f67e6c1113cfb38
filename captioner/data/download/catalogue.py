"""The published files: addresses, sizes and checksums. None of their content is part of this project."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SetName = Literal["coco2014", "coco2017", "karpathy", "flickr8k"]

COCO = "http://images.cocodataset.org"
LAVIS = "https://storage.googleapis.com/sfr-vision-language-research/datasets"
FLICKR8K = "https://github.com/jbrownlee/Datasets/releases/download/Flickr8k"

COCO_LICENCE = (
    "COCO's captions: CC BY 4.0, COCO Consortium. The photos belong to their authors on Flickr, each under the licence "
    "that its author chose (https://cocodataset.org/#termsofuse)."
)
FLICKR8K_LICENCE = """\
Flickr8k (Hodosh, Young and Hockenmaier, 2013) may be used for non-commercial research and education only.
The photos belong to their authors on Flickr. You may not redistribute them.
The same holds for models that are trained on Flickr8k: they are for non-commercial use."""


@dataclass(frozen=True)
class PublishedFile:
    """A file with its place below a base address. `unpacked` is the size of its content relative to its own."""

    base: str
    path: str
    md5: str
    size: int | None = None  # bytes; None where no public source tells it
    unpacked: float = 1.0
    estimate: int = 0  # bytes, roughly, for the check of the disk space where the size is not known

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    def url(self, mirror: str | None = None) -> str:
        """The address, with the same path on a mirror where one is given."""
        return f"{(mirror or self.base).rstrip('/')}/{self.path}"


# The captions and boxes take 2.3 times the space of the archive when they are unpacked; the rest of it is left out.
COCO_ANNOTATIONS = {
    "2014": PublishedFile(
        COCO, "annotations/annotations_trainval2014.zip", "0a379cfc70b0e71301e0f377548639bd", 252_872_794, 2.3
    ),
    "2017": PublishedFile(
        COCO, "annotations/annotations_trainval2017.zip", "f4bbac642086de4f52a3fdda2de5fa2c", 252_907_541, 2.3
    ),
}
COCO_PICTURES = {
    "train2014": PublishedFile(COCO, "zips/train2014.zip", "0da8c0bd3d6becc4dcb32757491aca88", 13_510_573_713),
    "val2014": PublishedFile(COCO, "zips/val2014.zip", "a3d79f5ed8d289b7a7554ce06a5782b3", 6_645_013_297),
    "train2017": PublishedFile(COCO, "zips/train2017.zip", "cced6f7f71b7629ddf16f17bbcfab6b2", 19_336_861_798),
    "val2017": PublishedFile(COCO, "zips/val2017.zip", "442b8da7639aecaf257c1dceb8ba8c80", 815_585_330),
}
KARPATHY_SPLITS = {
    "train": PublishedFile(LAVIS, "coco_karpathy_train.json", "aa31ac474cf6250ebb81d18348a07ed8"),
    "val": PublishedFile(LAVIS, "coco_karpathy_val.json", "b273847456ef5580e33713b1f7de52a0"),
    "test": PublishedFile(LAVIS, "coco_karpathy_test.json", "3ff34b0ef2db02d01c37399f6a2a6cd1"),
}
FLICKR8K_PICTURES = PublishedFile(
    FLICKR8K, "Flickr8k_Dataset.zip", "f18a1e2920de5bd84dae7cf08ec78978", estimate=1_120_000_000
)
FLICKR8K_TEXT = PublishedFile(FLICKR8K, "Flickr8k_text.zip", "bf6c1abcb8e4a833b7f922104de18627", None, 5.0, 2_500_000)
