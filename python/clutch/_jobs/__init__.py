"""The parts of `clutch.jobs`, and jobs without workers, which users have from `clutch.testing`."""
