"""Whether the lab tells the truth: its tuning beside whole grids, its verdicts where the answer is known."""
