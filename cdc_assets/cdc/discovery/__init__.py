"""What a landing shows of its source, and what to write in cdc.yaml."""
