"""`python -m clutch.config` prints docs/config.md."""

from clutch.config.pages import reference

print(reference(), end="")
