"""Landings: the records of a day, bytes as they came."""
