"""Classes of a program that workers cannot import: enums and others whose metaclass makes more than their body says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.clutch_process import WAIT_SECONDS, environment

CLASSES = """
import abc, dataclasses, enum, typing
from clutch import Pool

class Colour(enum.Enum):
    RED = 1
    BLUE = 2
    def shout(self):
        return self.name + "!"

class Bits(enum.Flag):
    A = enum.auto()
    B = enum.auto()

class Size(enum.IntEnum):
    SMALL = 1

class Point(typing.NamedTuple):
    x: int

class Typed(typing.TypedDict):
    x: int

@dataclasses.dataclass(slots=True, frozen=True)
class Slotted:
    colour: Colour = Colour.RED

class Base(abc.ABC):
    @abc.abstractmethod
    def get(self): ...

class Child(Base):
    count = 0
    def get(self):
        return type(self).count

class Frozen(type):
    def __setattr__(cls, name, value):
        raise TypeError(name)
    def __delattr__(cls, name):
        raise TypeError(name)

def look(_):
    return Colour.RED, Colour(2).shout(), Bits.A | Bits.B, Size.SMALL + 1, Point(3), Slotted(), Child().get()

def count_up():
    Child.count += 1
    return Child().get()

def members(colour):
    return [one.name for one in type(colour)]

with Pool(2, profile="PROFILE") as pool:
    expected = Colour.RED, "BLUE!", Bits.A | Bits.B, 2, Point(3), Slotted(), 0
    assert list(pool.map(look, range(50), chunksize=1)) == [expected] * 50
    for _ in range(5):
        assert pool.call(members, Colour.BLUE) == ["RED", "BLUE"]
        assert pool.submit(lambda: Colour.RED).result() is Colour.RED
    # There is one class in a worker: each call that brings it sets it anew, so these go one after the other.
    assert [pool.call(count_up) for _ in range(5)] == [1] * 5
    Child.more = 5
    assert pool.call(lambda: Child.more) == 5
    del Child.more
    assert pool.call(lambda: hasattr(Child, "more")) is False
"""


@pytest.mark.parametrize("profile", ["process", "thread", "async"])
def test_classes_of_a_program_without_a_file(tmp_path: Path, profile: str) -> None:
    text = CLASSES.replace("PROFILE", profile)
    command = [sys.executable, "-"]
    more = {"env": environment(), "timeout": WAIT_SECONDS, "capture_output": True, "text": True}
    done = subprocess.run(command, input=text, cwd=tmp_path, **more)  # type: ignore[call-overload]
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
