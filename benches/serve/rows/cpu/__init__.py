"""The rows of CPU time."""
