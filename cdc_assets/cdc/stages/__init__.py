"""The stages of a source: the inputs of their days, which days are stale, and making them."""
