"""The writers that put captions into photos or beside them, as the user asked for."""

from __future__ import annotations

from captioner.errors import UsageError
from captioner.files.existing import Existing
from captioner.images.limits import LIMITS, Limits
from captioner.installation import install_command
from captioner.writers.caption_outputs import PhotoWriter
from captioner.writers.sidecars import SidecarWriter


def photo_writers(
    *,
    sidecar_extension: str | None,
    existing: Existing | None,
    metadata: bool,
    xmp_sidecar: bool,
    overwrite: bool,
    limits: Limits = LIMITS,
) -> list[PhotoWriter]:
    """Text sidecars if an extension is given, photo metadata, and XMP sidecars."""
    writers: list[PhotoWriter] = []
    if sidecar_extension is not None:
        kept = existing or ("overwrite" if overwrite else "keep")
        writers.append(SidecarWriter(extension=sidecar_extension, existing=kept))
    if metadata or xmp_sidecar:
        try:
            import pyexiv2  # noqa: F401
        except ImportError as error:  # missing, or without a library of the system that it needs
            flag = "--write-metadata" if metadata else "--xmp-sidecar"
            raise UsageError(f"{flag} needs the package pyexiv2 ({error}): {install_command('metadata')}") from None
        from captioner.writers.photo_metadata import MetadataWriter
        from captioner.writers.xmp_sidecars import XmpSidecarWriter

        if metadata:
            writers.append(MetadataWriter(overwrite=overwrite, limits=limits))
        if xmp_sidecar:
            writers.append(XmpSidecarWriter(overwrite=overwrite))
    return writers
