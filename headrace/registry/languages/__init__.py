"""Schema languages: how each is parsed, written canonically and normalised."""
