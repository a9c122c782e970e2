"""Schedules, sensors, health checks, alerts and maintenance."""
