"""Data sets of pictures with captions: read them (`formats`), check them (`check`), draw a synthetic one (`shapes`)."""
