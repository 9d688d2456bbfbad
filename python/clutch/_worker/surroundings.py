"""What a zygote is told by its environment."""

from __future__ import annotations

ZYGOTE_OF = "CLUTCH_ZYGOTE_OF"
"""Process id of the program that has started a zygote, which takes it out again: what still has it when it makes a
pool is no interpreter, but a program that was started as one."""
