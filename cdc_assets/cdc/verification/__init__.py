"""Is a table of the lake equal to its source? A snapshot of the database against the lake."""
