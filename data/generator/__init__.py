"""The simulated producers behind `data/make_landing.py`."""
