"""The control socket of a process with pools: how both ends speak, and what the commands do there."""
