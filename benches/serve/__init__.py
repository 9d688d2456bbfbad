"""Served apps: Clutch beside granian, gunicorn and uvicorn, with their fastest documented settings.

Run it as `python -m benches.serve [row …] [--quick] [--json] [--peers]` from the project's root.
"""
