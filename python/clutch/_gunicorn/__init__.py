"""gunicorn's settings, and flags of other servers, for `clutch serve`."""
