"""The evidence about a source in its landing, and the settings it suggests for cdc.yaml."""
