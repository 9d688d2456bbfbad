"""All code that runs in zygotes and workers. It imports the standard library, `_core` and the target.

A file that needs an extra imports it there. Nothing here imports the dispatcher's half.
"""
