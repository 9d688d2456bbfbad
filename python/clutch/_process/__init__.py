"""What a process that serves owes to those who started it: signals, systemd, PID 1, its log and its pid."""
