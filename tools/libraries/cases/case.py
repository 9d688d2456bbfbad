"""What a case of the atlas is."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent

STANDARD = "cloudpickle"
"""What a case of the standard library requires: nothing that is not there anyway."""


@dataclass(frozen=True)
class Case:
    """A library as programs use it. `top` runs at the import of the target; `use` is the body of `use(n)`."""

    name: str
    requires: tuple[str, ...]
    """Of PyPI; the first is the library."""
    what: str
    """What is made at import, in words."""
    top: str
    use: str
    server: str | None = None
    differs: bool = False
    """Answers may be others than those of a program without a pool."""
    is_random: bool = False
    """Each answer is another one, in whatever worker."""
    in_greenlets: bool = True
    answered: str = ""
    """Why what it does instead of working is right."""


def case(name: str, what: str, top: str, use: str, *requires: str, **more: object) -> Case:
    """Make a case. `requires`: the package of its name, if none is given."""
    top, use = dedent(top).strip(), dedent(use).strip()
    return Case(name, requires or (name,), what, top, use, **more)  # type: ignore[arg-type]
