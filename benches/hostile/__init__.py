"""Hostile clients of served apps: attacks on memory, descriptors and slots; requests that may be read in two ways.

Run it as `python -m benches.hostile [attacks] [matrix] [--only NAME]` from the project's root. All of it goes over
loopback, is bounded in count and time, and ends by itself.
"""
