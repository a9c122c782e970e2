"""Records whose schemas are in a schema registry: found, kept in the lake, decoded by Spark."""
