"""What starts runs and watches over them: schedules, sensors, health, alerts, maintenance."""
