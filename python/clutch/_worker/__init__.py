"""All that runs in zygotes and workers: the standard library, `_core`, and what the target brings.

A file that needs an extra imports it there. Nothing here imports the dispatcher's half.
"""
