"""Handlers: from one kind of work to the user's callable. One file for each kind."""
