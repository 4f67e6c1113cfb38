"""Fetch published data sets: resumable transfers, checksums, unpacking, and the splits of the literature."""
