"""Landings: the unchanged records of a day, from files, Kafka or tables."""
