"""The soak: mixed work on pools of every profile while workers and zygotes are killed, stopped and replaced.

Every piece of work has a number, and its answer has to bring that number back, once. What was lost, answered twice or
answered wrongly, and what is left of the pools at the end, makes the run fail.

Run it as `python -m soak --minutes 5` from the project's root, or `make soak`.
"""
