"""The bench table: Clutch beside its peers, in interleaved pairs, as ratios with intervals.

Run it as `python -m benches [row …] [--quick] [--json]` from the project's root.
"""
