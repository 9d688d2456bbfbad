"""Duties of a process that serves: signals, systemd, PID 1, log and pid file."""
