"""Job queues side by side: Clutch, taskiq, dramatiq, huey, saq, arq, rq, Celery and taskito.

Run it as `python -m benches.jobs [row …] [--quick] [--json] [--peers]` from the project's root.
"""
