"""Jobs without workers, for tests. Users have it from `clutch.testing`."""
