"""The program around a dispatcher, as far as it wants to be told."""

from __future__ import annotations

from clutch.errors import ConfigError


class Observer:
    """Hears of a dispatcher's life, in whatever thread something happens. As it is, it does nothing."""

    def status(self, text: str) -> None:
        """Where the start has got to."""

    def ready(self, status: str) -> None:
        """All that is required serves; again after each reload."""

    def reloading(self) -> None:
        """New code is being loaded."""

    def stopping(self) -> None:
        """The stop begins."""

    def failed(self, error: ConfigError) -> None:
        """A pool can never be ready."""
