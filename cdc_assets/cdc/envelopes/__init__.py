"""Envelopes: how each format writes a change event, read into the common columns."""
