"""The control socket of a process with pools: where it is, who asks there, and what a program with pools shows."""
