"""The code of a small shop: what the examples run in their pools."""
