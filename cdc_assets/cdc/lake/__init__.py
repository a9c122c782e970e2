"""The lake: its catalog, commits, schemas and upkeep."""
