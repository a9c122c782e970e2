"""The command line `cdc-assets`."""
