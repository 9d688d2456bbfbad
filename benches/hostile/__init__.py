"""Hostile clients of served apps. All of it goes over loopback, is bounded in count and time, and ends by itself."""
