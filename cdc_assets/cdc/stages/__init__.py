"""The stages of a source: what their days are made of, which are stale, and making them."""
