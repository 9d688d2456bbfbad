"""Clutch beside its peers, as ratios with intervals, on the lab: `python -m benches [SUITE] [ROW …] [--quick]`.

`suite` has what a row is; `calls`, `serve` and `jobs` have the rows; `playing` measures, `shown` prints. `lab` measures
whether the lab tells the truth, `hostile` what attacks cost.
"""
