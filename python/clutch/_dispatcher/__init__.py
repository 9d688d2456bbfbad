"""Parts of the dispatcher: its log, the lines about events, and reloads."""
