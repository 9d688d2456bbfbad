"""The walls of the house (ARCHITECTURE.md, "Who may import whom"), enforced by reading the sources."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CRATES = ROOT / "crates"
PACKAGE = ROOT / "python/clutch"

# One floor, one crate: the compiler keeps these walls, for a crate can only use what its Cargo.toml names.
FLOORS = {
    "wire": set(),
    "pool": {"wire"},
    "host": {"wire", "pool"},
    "fronts": {"wire", "pool", "host"},
    "jobs": {"wire", "pool", "host"},
    "load": {"wire"},
    "py": {"wire", "pool", "host", "fronts", "jobs", "load"},
}
# Within the pool: links know no pools, and pools know nothing of who starts their workers.
POOL_RANKS = {"link": 1, "pool": 2, "supervisor": 3}
FRONTS = {"http", "admin", "serve", "tcp"}
# Within the bridge, the worker's side from its link up, each on what is below it. The dispatcher's side is apart.
WORKER_RANKS = {"link": 1, "slots": 2, "handlers": 3, "worker": 4, "call": 5, "serving": 6, "held": 7}
# Words of single kinds of work: known to their handlers alone.
KINDS = r"asgi|wsgi|websocket|lifespan|\brequests?\b|\bapps?\b"

# Of the Python package: what may not be imported from where, by file or folder. `_worker` runs in workers and must stay
# small.
FORBIDDEN_IN = {
    "_worker": {"pool", "_pool", "jobs", "_jobs", "_serve", "cli", "control", "lab"},
    "errors": {"*"},
    "config": {
        "pool",
        "_pool",
        "jobs",
        "_jobs",
        "_serve",
        "_process",
        "_gunicorn",
        "cli",
        "control",
        "_worker",
        "_core",
    },
    "config/limits": {"*"},
    "config/interpreter": {"*"},
    "config/values": {"*"},
    "config/log_format": {"config/__init__", "config/loading", "config/options"},
    "config/options": {"config/__init__", "config/loading", "config/tables"},
    "config/layers": {"config/__init__", "config/loading", "config/options"},
    "config/tables": {
        "config/__init__",
        "config/loading",
        "config/pools",
        "config/fronts",
        "config/stores",
        "config/cron",
    },
    "pool": {"jobs", "_jobs", "_serve", "cli", "dispatcher", "_dispatcher"},
    "_pool": {"jobs", "_jobs", "_serve", "cli", "dispatcher", "_dispatcher"},
    "_pickle": {
        "pool",
        "_pool",
        "jobs",
        "_jobs",
        "_serve",
        "cli",
        "control",
        "config",
        "dispatcher",
        "_dispatcher",
        "_worker",
        "_core",
    },
    "_jobs": {"pool", "_pool", "_serve", "cli", "control", "dispatcher", "_dispatcher"},
    "dispatcher": {"jobs", "_jobs", "_serve", "_process", "_gunicorn", "cli"},
    "_dispatcher": {"jobs", "_jobs", "_serve", "_process", "_gunicorn", "cli"},
    "_process": {"jobs", "_jobs", "_serve", "_gunicorn", "cli"},
    "_gunicorn": {"dispatcher", "jobs", "_jobs", "_serve", "_process", "cli"},
    "_serve": {"cli"},
    # What users may import, and nothing else.
    "lab": {
        "_pool",
        "_pickle",
        "_jobs",
        "_serve",
        "_process",
        "_dispatcher",
        "_worker",
        "_core",
        "cli",
        "control",
        "config",
    },
    "control": {"pool", "_pool", "jobs", "_jobs", "_serve", "cli", "config/__init__", "_worker"},
}
# The load generator is a part of the core that only the lab has.
GENERATOR = ("lab/generator", "_core")
# What files of `_worker` may import beyond the standard library and Clutch: each extra in the file that is about it.
WORKER_EXTRAS = {
    "profiles/aio.py": {"uvloop"},
    "handlers/json.py": {"pydantic", "pydantic_core", "typing_extensions"},
    "handlers/schema.py": {"pydantic"},
    "profiles/greenlet.py": {"gevent", "greenlet"},
}

BAD_FILE_NAMES = {"utils", "util", "common", "helpers", "helper", "misc"}
# One word for each thing; these are other projects' words for zygote, dispatcher, worker, slot and recycle.
BAD_WORDS = {"master", "slave", "arbiter", "mold", "forkserver", "whitelist", "blacklist", "mgr"}

# Redis has these in its protocol, SQLite before 3.33 in its tables, and kombu among its options.
WORDS_OF_OTHERS = {"discovery.rs": {"master"}, "transaction.py": {"master"}, "apps.py": {"master"}}


# Rust


def rust_files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.rs"))


def code_of(file: Path) -> str:
    """The source without comments, strings and its own unit tests."""
    text = re.sub(r"//[^\n]*", "", file.read_text())
    text = re.sub(r'"(?:\\.|[^"\\])*"', '""', text)
    return re.split(r"#\[cfg\(test\)\]\s*mod \w+ \{", text)[0]


def imported(code: str) -> set[str]:
    """Paths that follow `crate::`, groups taken apart, two names deep."""
    found = set()
    for match in re.finditer(r"\bcrate::(\w+)(?:::(\w+|\{[^;]*?\}))?", code):
        first, second = match.groups()
        names = re.findall(r"\w+", second or "") or [""]
        found |= {f"{first}::{name}" for name in names}
    for group in re.findall(r"\bcrate::\{([^;]*)\}\s*;", code):
        flat = re.sub(r"::\{[^{}]*\}", "", group)
        found |= {f"{path.strip()}::" for path in flat.split(",") if path.strip()}
    return found


def test_crates_know_only_those_below() -> None:
    assert {folder.name for folder in CRATES.iterdir()} == {f"clutch-{name}" for name in FLOORS}
    for name, below in FLOORS.items():
        manifest = tomllib.loads((CRATES / f"clutch-{name}/Cargo.toml").read_text())
        tables = [manifest.get(table, {}) for table in ("dependencies", "dev-dependencies", "build-dependencies")]
        used = {crate for table in tables for crate in table if crate.startswith("clutch-")}
        assert used == {f"clutch-{crate}" for crate in below}, name


def test_the_pool_imports_go_down() -> None:
    source = CRATES / "clutch-pool/src"
    for file in rust_files(source):
        here = POOL_RANKS.get(file.relative_to(source).parts[0].removesuffix(".rs"), 0)
        for path in imported(code_of(file)):
            there = POOL_RANKS.get(path.split("::")[0], 0)
            assert there <= here, f"{file.relative_to(source)} may not use crate::{path}"


def test_the_bridge_imports_go_down() -> None:
    source = CRATES / "clutch-py/src"
    for file in rust_files(source):
        top = file.relative_to(source).parts[0].removesuffix(".rs")
        here = WORKER_RANKS.get(top, 0)
        for path in set() if top == "lib" else imported(code_of(file)):
            there = path.split("::")[0]
            assert WORKER_RANKS.get(there, 0) <= here, f"{file.relative_to(source)} may not use crate::{path}"
            assert there != "dispatcher" or top == "dispatcher", f"{file.relative_to(source)} uses crate::{path}"


def test_only_handlers_know_kinds_of_work() -> None:
    """A new kind is a handler, and a line where handlers are found: nothing around them names one."""
    source = CRATES / "clutch-py/src"
    around = [source / f"{room}.rs" for room in WORKER_RANKS if room != "handlers"]
    rooms = [file for room in ("link", "slots", "serving") for file in rust_files(source / room)]
    profiles = sorted((PACKAGE / "_worker/profiles").glob("*.py"))
    for file in (*around, *rooms, *profiles):
        code = code_of_python(file) if file.suffix == ".py" else code_of(file)
        found = re.search(KINDS, code, re.IGNORECASE)
        assert not found, f"{file.relative_to(ROOT)} knows of {found[0]}"


def test_files_of_the_bridge_form_no_circles() -> None:
    below = {file: rust_imports(file, CRATES / "clutch-py/src") for file in rust_files(CRATES / "clutch-py/src")}
    while leaves := {file for file, used in below.items() if not used & below.keys() - {file}}:
        for file in leaves:
            del below[file]
    assert not below, sorted(str(file.relative_to(ROOT)) for file in below)


def rust_imports(file: Path, source: Path) -> set[Path]:
    """The files that the `use` lines of a file name, those of its own room and its parent's too."""
    here = file.relative_to(source).with_suffix("").parts
    found = set()
    for use in re.findall(r"\buse ((?:crate|super|self)::[^;]+);", code_of(file)):
        for path in flat(re.sub(r"\s+", "", use)):
            names = path.split("::")
            at = list(here) if names[0] != "crate" else []
            for name in names[names[0] == "crate" :]:
                at = at[:-1] if name == "super" else at if name == "self" else [*at, name]
            files = (source.joinpath(*at[:length]).with_suffix(".rs") for length in range(len(at), 0, -1))
            found |= {next((one for one in files if one.is_file()), file)}
    return found - {file}


def flat(use: str) -> list[str]:
    """The paths of a `use`, groups taken apart."""
    head, brace, rest = use.partition("{")
    if not brace:
        return [use]
    parts, depth = [""], 0
    for character in rest[: rest.rindex("}")]:
        depth += (character == "{") - (character == "}")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return [path for part in parts if part for path in flat(head + part)]


def test_a_room_of_modules_is_named_as_its_file() -> None:
    """`name.rs` beside `name/`; tests share `mod.rs`, or Cargo would take it for a test."""
    assert not [file for crate in CRATES.iterdir() for file in (crate / "src").rglob("mod.rs")]


def test_fronts_do_not_know_one_another() -> None:
    """Nor do the parts that fronts share know any front; `lib.rs` lists them. None knows who starts workers."""
    source = CRATES / "clutch-fronts/src"
    for file in rust_files(source):
        here, code = file.relative_to(source).parts[0].removesuffix(".rs"), code_of(file)
        known = {path.split("::")[0] for path in imported(code)} & FRONTS - {here}
        assert not known, f"{file.relative_to(source)} uses {known}"


def test_no_long_lived_part_knows_who_starts_workers() -> None:
    for crate in ("host", "fronts", "jobs"):
        for file in rust_files(CRATES / f"clutch-{crate}/src"):
            assert "clutch_pool::supervisor" not in code_of(file), file


def test_fronts_emit_no_telemetry() -> None:
    """Events are emitted at the waists (pool, jobs, supervisor), so that each is counted once."""
    assert not [file for file in rust_files(CRATES / "clutch-fronts") if re.search(r"\.emit\(", code_of(file))]


def test_unsafe_is_beside_the_kernel_and_python() -> None:
    inside = {*rust_files(CRATES / "clutch-wire/src/sys"), CRATES / "clutch-jobs/src/stores/sqlite/locks.rs"}
    for crate in FLOORS.keys() - {"py"}:
        for file in rust_files(CRATES / f"clutch-{crate}/src"):
            assert file in inside or not re.search(r"\bunsafe\b", code_of(file)), file


def test_every_unsafe_says_why_it_is_sound() -> None:
    for file in rust_files(CRATES):
        lines = file.read_text().splitlines()
        for nr, line in enumerate(lines):
            if re.search(r"\bunsafe\s*(\{|impl\b)", line.split("//")[0]):
                above = "\n".join(lines[max(0, nr - 6) : nr + 2])
                assert "SAFETY" in above, f"{file.relative_to(ROOT)}:{nr + 1}"


def test_one_crate_knows_python() -> None:
    for crate in FLOORS.keys() - {"py"}:
        assert "pyo3" not in (CRATES / f"clutch-{crate}/Cargo.toml").read_text(), crate


# Python


def python_files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def code_of_python(file: Path) -> str:
    """The source without comments and docstrings."""
    tree = ast.parse(file.read_text())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            body[:] = [
                one for one in body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))
            ] or [ast.Pass()]
    return ast.unparse(tree)


def path_of(file: Path) -> str:
    return str(file.relative_to(PACKAGE).with_suffix(""))


def imports(tree: ast.AST) -> Iterator[tuple[ast.stmt, str]]:
    """Every module that is imported, anywhere in the file; `from clutch import pool` counts as clutch.pool."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            module = node.module or ""
            for alias in node.names:
                yield node, f"{module}.{alias.name}" if is_package(module) else module


def is_package(module: str) -> bool:
    return (ROOT / "python" / module.replace(".", "/") / "__init__.py").exists()


def imported_path(name: str) -> str:
    """The file in the package: "config/options" of clutch.config.options, "config/__init__" of clutch.config.load."""
    path = name.removeprefix("clutch.").replace(".", "/")
    if path == "_core" or (PACKAGE / f"{path}.py").exists():
        return path
    return f"{path if (PACKAGE / path).is_dir() else path.rpartition('/')[0]}/__init__".removeprefix("/")


def forbidden_in(path: str) -> set[str]:
    return set().union(*(names for room, names in FORBIDDEN_IN.items() if is_in(path, room)))


def is_in(path: str, room: str) -> bool:
    return path == room or path.startswith(f"{room}/")


@pytest.mark.parametrize("file", python_files(), ids=lambda file: str(file.relative_to(PACKAGE)))
def test_python_imports(file: Path) -> None:
    here = path_of(file)
    forbidden = forbidden_in(here)
    for node, name in imports(ast.parse(file.read_text())):
        if not name.startswith("clutch."):
            continue
        there = imported_path(name)
        where = f"{file.relative_to(ROOT)}:{node.lineno} imports {name}"
        assert not is_in(there, "lab") or is_in(here, "lab") or is_in(here, "cli"), where
        if (here, there) == GENERATOR:
            continue
        assert "*" not in forbidden and not any(is_in(there, room) for room in forbidden), where


def test_no_circles() -> None:
    """Types count: a file that needs another's types is to be read after it."""
    graph = {
        path_of(file): {
            imported_path(name)
            for _, name in imports(ast.parse(file.read_text()))
            if name.startswith("clutch.") and imported_path(name) != path_of(file)
        }
        for file in python_files()
        if file.name != "__init__.py"  # it re-exports what its folder has
    }
    while leaves := {path for path, used in graph.items() if not used & graph.keys()}:
        for path in leaves:
            del graph[path]
    assert not graph, {path: sorted(used & graph.keys()) for path, used in graph.items()}


def at_import_time(tree: ast.Module) -> Iterator[ast.stmt]:
    """The statements that run when the file is imported, those under TYPE_CHECKING left out."""
    waiting: list[ast.stmt] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            waiting += [child for child in ast.walk(node) if isinstance(child, ast.stmt) and child is not node]


@pytest.mark.parametrize("file", sorted((PACKAGE / "_worker").rglob("*.py")), ids=lambda file: file.name)
def test_worker_imports_an_extra_only_where_it_belongs(file: Path) -> None:
    allowed = {"clutch"} | WORKER_EXTRAS.get(str(file.relative_to(PACKAGE / "_worker")), set())
    for node in at_import_time(ast.parse(file.read_text())):
        for _, name in imports(ast.Module([node], [])):
            package = name.split(".")[0]
            assert package in sys.stdlib_module_names | allowed, f"{file.name}:{node.lineno} imports {name}"


@pytest.mark.parametrize(
    "name",
    [
        "config/__init__",
        "config/options",
        "config/values",
        "config/limits",
        "config/interpreter",
        "errors",
        "cli/__init__",
    ],
)
def test_checked_without_the_extension(name: str) -> None:
    for node in at_import_time(ast.parse((PACKAGE / f"{name}.py").read_text())):
        assert not any(found.startswith("clutch._core") for _, found in imports(ast.Module([node], [])))


# Both


def sources() -> list[Path]:
    return [*python_files(), *rust_files(CRATES)]


def test_no_file_is_named_for_nothing() -> None:
    assert not [file for file in sources() if file.stem in BAD_FILE_NAMES]


def test_one_word_for_one_thing() -> None:
    for file in sources():
        for word in re.findall(r"[a-z]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", file.read_text()).lower()):
            assert word not in BAD_WORDS - WORDS_OF_OTHERS.get(file.name, set()), f"{file.relative_to(ROOT)}: {word}"


def test_tests_wait_for_events_never_for_time() -> None:
    """A sleep inside a tool (a string or a function that runs in a worker) is work; in a test it is a guess."""
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        for function in ast.walk(ast.parse(file.read_text())):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and function.name.startswith("test_"):
                for node in function.body:
                    assert not _sleeps(node), f"{file.relative_to(ROOT)}:{node.lineno} sleeps"


def _sleeps(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    calls = (node for node in ast.walk(statement) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call))
    return any(ast.unparse(call.value).startswith(("time.sleep(", "sleep(")) for call in calls)
