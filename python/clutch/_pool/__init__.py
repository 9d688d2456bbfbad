"""Parts of `Pool`: its ways to call, maps, and what workers inherit from the program that creates it."""
