"""Landings: the unchanged records of a day, from files or Kafka."""
