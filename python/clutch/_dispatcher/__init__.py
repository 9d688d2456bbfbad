"""What a dispatcher has beside its pools and fronts: its log, the lines about events, and the loading of new code."""
