"""Profiles: how slots are made inside a worker. One file for each; base.py says what one is."""
