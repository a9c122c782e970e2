"""The lake: catalog, commits, schemas and maintenance."""
