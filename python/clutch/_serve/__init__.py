"""`clutch.serve` in a program."""
