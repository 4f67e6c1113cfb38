"""Caption files of any known format become a CaptionSet: `detection.read_set` is the entry."""
