"""changes → each table as it stood at the end of a day."""
