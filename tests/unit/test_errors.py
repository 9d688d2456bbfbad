"""The error tree: its shape, its attributes, and that each survives pickling."""

from __future__ import annotations

import concurrent.futures.process
import inspect
import pickle

import pytest

from clutch import broken, errors

SAMPLES = {
    errors.ClutchError: {},
    errors.Overloaded: {"pool": "api", "retry_after": 0.5},
    errors.Draining: {"pool": "api", "retry_after": None},
    errors.DeadlineExceeded: {"where": "queue", "stacks": "File x"},
    broken.WorkerLost: {"pid": 7, "signal": 9, "exit_code": None, "output": "bye", "cause": "reload"},
    errors.StoreError: {},
    errors.StoreUnavailable: {},
    errors.JobFailed: {"job": "7", "state": "dead", "remote_traceback": "Traceback"},
    errors.Poisoned: {"deaths": 3},
    errors.RemoteError: {"kind": "encode", "type_name": "ValueError", "remote_traceback": "Traceback"},
    errors.NoSuchPool: {"name": "x"},
    errors.NoSuchTool: {"name": "x"},
    errors.BadArguments: {"problems": ({"place": "size", "what": "not an int"},)},
    errors.ConfigError: {"problems": (errors.Problem("pools.a.workers", "wrong", "0", "1 or more"),)},
    errors.PoolClosed: {},
}


def tree() -> set[type]:
    everything = [*vars(errors).values(), *vars(broken).values()]
    return {kind for kind in everything if inspect.isclass(kind) and issubclass(kind, errors.ClutchError)}


def test_every_error_has_a_sample() -> None:
    assert tree() == set(SAMPLES)


@pytest.mark.parametrize("kind", SAMPLES, ids=lambda kind: kind.__name__)
def test_pickling_keeps_all(kind: type[errors.ClutchError]) -> None:
    error = kind("what happened", **SAMPLES[kind])
    error.add_note("seen by a test")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert str(copy) == str(error)
    assert copy.message == "what happened"
    assert copy.__notes__ == ["seen by a test"]
    for name, value in SAMPLES[kind].items():
        assert getattr(copy, name) == value == getattr(error, name)


@pytest.mark.parametrize("kind", SAMPLES, ids=lambda kind: kind.__name__)
def test_made_without_arguments(kind: type[errors.ClutchError]) -> None:
    assert pickle.loads(pickle.dumps(kind())).message == ""


@pytest.mark.parametrize(
    ("kind", "base"),
    [
        (errors.DeadlineExceeded, TimeoutError),
        (broken.WorkerLost, concurrent.futures.process.BrokenProcessPool),
        (errors.PoolClosed, RuntimeError),
        (errors.Draining, errors.Overloaded),
    ],
)
def test_drops_in_for(kind: type[Exception], base: type[Exception]) -> None:
    with pytest.raises(base, match="late"):
        raise kind("late")


def test_interrupted_passes_except_exception() -> None:
    assert not issubclass(errors.Interrupted, Exception)
    assert pickle.loads(pickle.dumps(errors.Interrupted("now"))).args == ("now",)


def test_remote_error_names_the_remote_type() -> None:
    error = errors.RemoteError("no such row", type_name="shop.Missing")
    assert (str(error), error.message) == ("shop.Missing: no such row", "no such row")


def test_remote_traceback_is_its_text() -> None:
    assert "line 3" in str(pickle.loads(pickle.dumps(errors.RemoteTraceback("line 3"))))


def test_config_error_lists_every_problem() -> None:
    problems = [
        errors.Problem("pools.a.profil", "no such option", nearest="profile"),
        errors.Problem("pools.a.workers", "not a whole number", given="'x'", allowed="1 or more", source="clutch.toml"),
    ]
    text = str(errors.ConfigError(problems=problems))
    assert text.startswith("2 problems")
    assert "did you mean profile?" in text
    assert "given 'x'; allowed: 1 or more [clutch.toml]" in text
