"""The commands of the lab before they measure: what they say of options and targets that are meant otherwise.

What measures is replaced: nothing is started here.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from clutch.cli import bench, compare, habits, program, tune
from clutch.cli.lab import work_arguments
from clutch.lab.benching import Bench, Cell
from clutch.lab.comparing import ROUNDS_MIN
from clutch.lab.load import Figures, Load
from clutch.lab.outcome import Found
from clutch.lab.probing import Probe
from clutch.lab.setting import Setting
from clutch.lab.work import App, Calls, Handler, JobRun, Request, Url, Work

WEB = """
def create_app():
    ...

def app(environ, start_response):
    ...

class Service:
    def work(self, n=1):
        ...

    @staticmethod
    def alone():
        ...
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "tasks.py").write_text("def pure(n=1): ...\ndef other(): ...\ndef _hidden(): ...\n")
    (tmp_path / "web.py").write_text(WEB)
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/mail.py").write_text("def send(): ...\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Bench]:
    """Benches in place of measurements: each contender gets figures, in as many rounds as were asked for."""
    found: list[Bench] = []

    def measure(asked: Bench, contenders: Any, rounds: int | None, *_: Any, **__: Any) -> None:
        for one in contenders:
            asked.cells[one.name] = Cell([figures(nr) for nr in range(rounds or ROUNDS_MIN)], 0.1)
        found.append(asked)

    monkeypatch.setattr(bench.benching, "measure", measure)
    return found


def figures(nr: int) -> Figures:
    return Figures(1000 + nr, 1.0, 0.1, 0.1, {}, {"50": 0.001, "99": 0.002}, 0, 0, 1_000_000, [])


def clutch(*arguments: str) -> Result:
    return CliRunner().invoke(program, list(arguments), prog_name="clutch")


def refused(*arguments: str) -> str:
    """What a command says that was used wrongly."""
    done = clutch(*arguments)
    assert done.exit_code == 2 and not done.stdout, done.output
    return done.stderr.partition("Error: ")[2].strip()


# Options of others


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (["-c", "64"], "no option -c (of wrk, hey, ab, oha): write --callers 64"),
        (["-c64"], "write --callers 64"),
        (["-n", "1000"], "of hey, ab, oha: measurements have a time, not a count: write --seconds 5s"),
        (["-d30s"], "of wrk, k6: write --seconds 30s, which each round takes"),
        (["-d", "x=1"], "of curl, hey, oha: write --body 'x=1'"),
        (["--duration=30"], "write --seconds 30s, which each round takes"),
        (["-z", "1m30s"], "write --seconds TIME"),
        (["-q", "50"], "write --rate 50, of all callers together"),
        (["-t4"], "of wrk: leave it out: the load has the threads that it needs"),
        (["--latency"], "latencies are always shown"),
        (["-D", "body.json"], "write --body @body.json"),
        (["--users", "20"], "no option --users (of locust): write --callers 20"),
        (["--host", "http://localhost:8000"], "write http://localhost:8000 alone"),
        (["--run-time", "1m"], "write --seconds 1m"),
        (["--vus", "7"], "write --callers 7"),
        (["--budget", "20s"], "no option --budget (of clutch tune): write --seconds 20s"),
        (["--factory"], "write 'MODULE:create_app()' --path /"),
        (["-n"], "of hey, ab, oha"),
    ],
)
def test_an_option_of_another_program_is_answered_with_ours(typed: list[str], words: str) -> None:
    assert words in refused("bench", "http://localhost:8000", *typed)


def test_all_of_a_habit_is_answered_at_once() -> None:
    said = refused("bench", "-t4", "-c", "64", "-d30s", "--latency", "http://localhost:8000")
    assert [line.split(":")[0] for line in said.splitlines() if line.startswith("no option")] == [
        "no option -t",
        "no option -c (of wrk, hey, ab, oha)",
        "no option -d",
        "no option --latency (of wrk)",
    ]


@pytest.mark.parametrize(
    ("command", "typed", "words"),
    [
        ("tune", ["-d", "30s"], "write --budget 30s"),
        ("tune", ["--rounds", "4"], "write --budget 1m, the time to measure"),
        ("tune", ["-n", "20"], "of pyperf: write --budget 5m"),
        ("tune", ["--threads", "4"], "of clutch bench: use `clutch bench`"),
        ("tune", ["--save", "x.json"], "write --json > x.json"),
        ("tune", ["--pid", "1"], "use `clutch bench`"),
        ("compare", ["--tcp"], "use `clutch bench`"),
        ("compare", ["--store", "x"], "has stores of its own"),
        ("compare", ["--slo", "p99 < 5ms"], "use `clutch tune`"),
    ],
)
def test_each_command_answers_with_its_own_options(command: str, typed: list[str], words: str) -> None:
    assert words in refused(command, "tasks:pure", *typed)


def test_an_option_of_nobody_is_answered_by_what_is_near() -> None:
    assert "No such option" in refused("bench", "tasks:pure", "--nonsense")
    assert "--callers" in refused("bench", "tasks:pure", "--caller", "3")


def test_the_table_of_habits_is_whole() -> None:
    for row in habits.HABITS:
        assert all(option.startswith("-") for option in row.options) and row.whose
        for command in habits.WORDS:
            assert "{" not in row.instead.format(**habits.WORDS[command])


def test_short_options_that_all_others_have_work(folder: Path, measured: list[Bench]) -> None:
    done = clutch("bench", "web:app", "--path", "/", "-m", "PUT", "-H", "accept: */*")
    assert done.exit_code == 0 and measured[0].asked.startswith("web:app, PUT /, accept: */*;"), done.stderr
    assert "a URL: that is TARGET" in refused("bench", "web:app", "--path", "/", "-H", "http://localhost:8000")


# Options without an effect


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tasks:pure", "--threads", "4"], "--threads has no effect without a profile that has threads"),
        (["tasks:pure", "--profile", "thread", "--tasks", "4"], "add --profile async"),
        (["web:app", "--path", "/", "--threads", "4"], "add --profile thread"),
        (["http://h:1", "--profile", "thread", "-w", "2"], "--profile, --workers have no effect on a server that runs"),
        (["http://h:1", "--tasks", "2"], "--tasks has no effect on a server that runs"),
        (["http://h:1", "--jobs"], "--jobs has no effect on a server that runs"),
        (["http://h:1/x", "--path", "/y"], "the URL has the path /x, and --path has another"),
        (["http://h:1/x", "--requests", "several.toml"], "and --requests has another"),
        (["http://h:1", "n=1"], "n: arguments are for functions and jobs"),
        (["tasks:pure", "--poisson"], "give --rate, too"),
        (["tasks:pure", "--scale", "full"], "--scale has no effect on calls of a function"),
        (["tasks:pure", "--message", "x"], "--message has no effect on calls of a function: give --tcp, too"),
        (["tasks:pure", "--store", "x.db"], "--store has no effect on calls of a function: give --jobs, too"),
        (["tasks:pure", "--pid", "1"], "--pid has no effect on calls of a function: name the server by its URL"),
        (["tasks:pure", "--method", "PUT"], "--method has no effect on calls of a function: give --path, too"),
        (["web:app", "--tcp", "--body", "x"], "--body has no effect on a handler of TCP"),
        (["web:app", "--path", "/", "--recycling"], "--recycling has no effect on an app that Clutch serves"),
        (["tasks:pure", "--jobs", "--rate", "5"], "--rate has no effect on jobs: they are a backlog"),
        (["tasks:pure", "--jobs", "--callers", "5"], "--callers has no effect on jobs"),
        (["grid", "--rounds", "3", "-w", "1"], "--workers, --rounds have no effect on a preset: it has its own"),
        (["grid", "n=1"], "grid is a preset, which takes no arguments"),
        (["web:app", "--tcp", "--message", ""], "--message is empty"),
        (["web:app", "--requests", "1000"], "measurements have a time, not a count"),
    ],
)
def test_an_option_without_effect_is_an_error(folder: Path, arguments: list[str], words: str) -> None:
    assert words in refused("bench", *arguments)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "No such file"),
        ("", "it has no [[request]]"),
        ("[request]\n", "it has [request] for [[request]]"),
        ("[[request]]\nweight = 2\n", "a [[request]] has no path"),
        ('[[request]]\npth = "/a"\n', "pth: allowed are body, headers, method, path, weight"),
    ],
)
def test_a_file_of_requests_that_is_none(folder: Path, text: str | None, words: str) -> None:
    if text is not None:
        (folder / "several.toml").write_text(text)
    assert words in refused("bench", "web:app", "--requests", "several.toml")


def test_defaults_are_not_options_that_were_typed(folder: Path, measured: list[Bench]) -> None:
    for target in (["http://127.0.0.1:9"], ["tasks:pure"], ["web:app", "--tcp"], ["tasks:pure", "--jobs"]):
        assert clutch("bench", *target).exit_code == 0
    assert len(measured) == 4


def test_what_changes_little_is_a_warning(folder: Path, measured: list[Bench]) -> None:
    assert "Warning: --seed has no effect" in clutch("bench", "tasks:pure", "--seed", "3").stderr
    assert "--seed" not in clutch("bench", "tasks:pure", "-w", "1,2", "--seed", "3").stderr


# Targets


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("localhost:8000", "write http://localhost:8000"),
        ("127.0.0.1:8000/x", "write http://127.0.0.1:8000/x"),
        (":8000", "write http://localhost:8000"),
        ("example.org/x", "write http://example.org/x"),
        ("https://localhost:8000", "TLS is not measured"),
        ("tasks.pure", "write tasks:pure"),
        ("tasks", "write tasks:FUNCTION (it has pure, other)"),
        ("jobs.mail.send", "write jobs.mail:send"),
        ("jobs/mail.py:send", "write jobs.mail:send"),
        ("./tasks.py:pure", "write tasks:pure"),
        ("/elsewhere/tasks.py", "write tasks:FUNCTION"),
        ("nothing", "allowed are MODULE:FUNCTION"),
        ("web:create_app()", "to serve the app that it makes: 'web:create_app()' --path /"),
        ("web:Service.work", "is a method, which needs an object: write a function that calls Service(…).work(…)"),
    ],
)
@pytest.mark.parametrize("command", ["bench", "tune", "compare"])
def test_a_target_that_is_none_is_answered_by_what_is_meant(
    folder: Path, command: str, target: str, words: str
) -> None:
    said = refused(command, target)
    assert words in said
    assert "is no TARGET" not in said or "MODULE:FUNCTION, such as tools:resize" in said


@pytest.mark.parametrize("url", ["http://", "http://h:99999/", "http://h:x/", "http://:80"])
def test_a_url_of_no_server(url: str) -> None:
    assert "names no server; allowed is http://HOST:PORT/PATH" in refused("bench", url)


def test_a_source_is_read_and_never_run(folder: Path) -> None:
    (folder / "loud.py").write_text("raise SystemExit('it was imported')\ndef f(): ...\n")
    assert "write loud:f" in refused("bench", "loud.f")


def test_factories_of_apps(folder: Path, measured: list[Bench]) -> None:
    assert "write 'web:create_app()'" in refused("bench", "web:create_app", "--path", "/")
    assert "name the handler itself" in refused("bench", "web:create_app()", "--tcp")
    assert "not all servers take a factory" in refused("compare", "web:create_app()", "--path", "/")
    assert "'web:create_app()' --path /" in clutch("bench", "web:create_app").stderr
    for target in ("web:create_app()", "web:app"):
        assert clutch("bench", target, "--path", "/").exit_code == 0
    assert clutch("bench", "web:Service.alone").exit_code == 0


@pytest.mark.parametrize("command", ["tune", "compare"])
def test_a_server_that_runs_is_for_bench(command: str) -> None:
    said = refused(command, "http://localhost:8000")
    assert f"`clutch {command}` does not measure a server that runs already; `clutch bench` does" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--budget", "20"], "--budget is '20', without a unit: write 20s; allowed are 250ms, 30s, 5m"),
        (["--budget", "soon"], "--budget is 'soon'; allowed are 250ms, 30s, 5m"),
        (["--slo", "p95<50"], 'write "p95 < 50ms"'),
        (["--slo", "95 < 50 ms"], 'write "p95 < 50ms"'),
        (["--slo", "p99: 2s"], 'write "p99 < 2s"'),
        (["--slo", "fast"], "--slo is 'fast'; allowed is such as \"p99 < 50ms\""),
        (["--slo", "p98 < 5ms"], "with p50, p75, p90, p95, p99 or p99.9"),
        (["--memory", "2"], "without a unit: write 2MB or 2GB"),
        (["--memory", "much"], "allowed are 512MB, 2GB"),
    ],
)
def test_amounts_without_a_unit(folder: Path, arguments: list[str], words: str) -> None:
    assert words in refused("tune", "tasks:pure", *arguments)


def test_objectives() -> None:
    assert tune.objective_of("p99.9 <= 50 ms") == ("99.9", pytest.approx(0.05))
    assert tune.objective_of("p50<2s") == ("50", 2.0)


# Saved files


@pytest.mark.parametrize(
    ("work", "words"),
    [
        (Calls("tools", "resize", kwargs={"width": 800}), "tools:resize width=800"),
        (App("web:app", (Request("/a", headers=(("accept", "x"),)),)), "web:app, GET /a, accept: x"),
        (Url("http://h", (Request("/", "POST", body=b"hi"), Request("/b", weight=3)), 7), "http://h, POST /, body hi"),
        (App("web:app", (Request("/", "POST", body=bytes(99)),)), "web:app, POST /, body of 99 bytes (CRC "),
        (App("web:app", (Request("/", "POST", body_function="m:f"),)), "web:app, POST /, bodies of m:f()"),
        (Handler("tcp:hello", b"a\n"), r"tcp:hello over TCP, sent a\n"),
        (JobRun("tools", "send", {"n": 1}), "jobs of tools:send n=1 in SQLite"),
    ],
)
def test_what_was_asked_for_is_told_in_words(work: Work, words: str) -> None:
    said = bench.asked_of(work, None)
    assert said.startswith(words) and said.endswith("; the usual load") and "(module=" not in said
    assert bench.asked_of(work, Load(3)).endswith("; 3 at a time")


def test_a_file_of_other_work_is_told_in_words(folder: Path, measured: list[Bench]) -> None:
    assert clutch("bench", "tasks:pure", "n=1", "--save", "kept.json").exit_code == 0
    done = clutch("bench", "tasks:pure", "n=2", "--against", "kept.json")
    assert done.exit_code == 1 and len(measured) == 1
    usual = "; the usual load"
    assert f"kept.json: it has figures of tasks:pure n=1{usual}, not of tasks:pure n=2{usual}" in done.stderr
    assert clutch("bench", "tasks:pure", "n=1", "--against", "kept.json").exit_code == 0


def test_too_few_rounds_are_not_compared(folder: Path, measured: list[Bench]) -> None:
    few = clutch("bench", "tasks:pure", "--rounds", "2", "--save", "few.json")
    assert few.exit_code == 0 and "Warning: fewer than 8 rounds cannot tell anything: --against will" in few.stderr
    assert "--rounds is 2; with --against allowed are 8 or more" in refused(
        "bench", "tasks:pure", "--rounds", "2", "--against", "few.json"
    )
    done = clutch("bench", "tasks:pure", "--against", "few.json")
    assert done.exit_code == 1 and "it has 2 of the 8 rounds that tell anything; save it anew" in done.stderr
    assert len(measured) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [(None, "No such file"), ("{", "no file of `clutch bench --save`"), ("[]", "save it anew"), ("{}", "save it anew")],
)
def test_a_file_that_is_none(folder: Path, measured: list[Bench], text: str | None, words: str) -> None:
    if text is not None:
        (folder / "kept.json").write_text(text)
    done = clutch("bench", "tasks:pure", "--against", "kept.json")
    assert done.exit_code == 1 and words in done.stderr and "--against kept.json" in done.stderr and not measured


def test_a_file_of_a_comparison_is_no_file_of_bench(folder: Path, measured: list[Bench]) -> None:
    assert clutch("bench", "tasks:pure", "--save", "kept.json").exit_code == 0
    kept = json.loads((folder / "kept.json").read_text())
    (folder / "kept.json").write_text(json.dumps({**kept, "pairs": {}}))
    assert "it is of `clutch compare`" in clutch("bench", "tasks:pure", "--against", "kept.json").stderr


# Ctrl-C


def interrupted(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("command", "module", "name"), [("tune", tune, "tune"), ("compare", compare, "clutches"), ("bench", bench, "line")]
)
def test_an_interrupt_before_any_figure(
    folder: Path, monkeypatch: pytest.MonkeyPatch, command: str, module: Any, name: str
) -> None:
    monkeypatch.setattr(module, name, interrupted)
    done = clutch(command, "tasks:pure")
    assert (done.exit_code, done.stdout) == (130, "")
    assert done.stderr.splitlines()[-1] == "interrupted before there was anything to show"


def test_an_interrupt_before_a_round_is_whole(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.benching, "measure", interrupted)
    done = clutch("bench", "tasks:pure", "--save", "kept.json")
    assert (done.exit_code, done.stdout) == (130, "") and not (folder / "kept.json").exists()
    monkeypatch.setattr(bench.presets, "run", interrupted)
    done = clutch("bench", "grid")
    assert done.exit_code == 130 and "a preset shows its figures when all are measured" in done.stderr


# Help


@pytest.mark.parametrize(
    ("command", "absent"),
    [("bench", ()), ("tune", ("--pid",)), ("compare", ("--tcp", "--message", "--pid", "--store"))],
)
def test_help_has_sections_and_no_option_without_meaning(command: str, absent: tuple[str, ...]) -> None:
    said = clutch(command, "--help").stdout
    assert [line for line in said.splitlines() if line and line[0] != " "][1:4] == ["Work:", "Load:", "Settings:"]
    assert not [option for option in (*absent, "\n  TARGET\n") if option in said]
    for option in ("--path", "--callers", "--json", "--html", "--help"):
        assert said.count(f"{option} ") + said.count(f"{option},") == 1 or f"{option}\n" in said


def test_options_are_left_out_by_name() -> None:
    @work_arguments("tcp", "pid")
    def command() -> None: ...

    options: Callable[[], list[Any]] = lambda: command.__click_params__  # type: ignore[attr-defined]  # noqa: E731
    assert {"tcp", "pid"}.isdisjoint({one.name for one in options()})


# Writing


@pytest.fixture
def tuned(monkeypatch: pytest.MonkeyPatch) -> Found:
    """What a tuning has found, in place of one."""
    winner = Setting("thread", 1, threads=8)
    probe = Probe(0.01, 0.0001, is_async=False, cpus=2, start_s=0.1)
    rounds = [figures(nr) for nr in range(ROUNDS_MIN)]
    found = Found(probe, winner, {winner: rounds[0]}, {}, space=1, played={winner: rounds}, again=rounds[0])
    monkeypatch.setattr(tune, "tune", lambda *_, **__: found)
    return found


def test_a_tuning_is_written(folder: Path, tuned: Found) -> None:
    (folder / "clutch.toml").write_text('[pools.main]\ntarget = "tasks"  # ours\nworkers = 7\n')
    done = clutch("tune", "tasks:pure", "--write")
    assert done.exit_code == 0, done.stderr
    written = (folder / "clutch.toml").read_text()
    assert written == '[pools.main]\ntarget = "tasks"  # ours\nprofile = "thread"\nworkers = 1\nthreads = 8\n'
    assert "\nbest: thread 1×8" in done.stdout and "clutch.Pool('tasks', profile='thread'" in done.stdout


def test_a_tuning_that_is_not_sure_is_not_written(folder: Path, tuned: Found) -> None:
    tuned.space = 12
    done = clutch("tune", "tasks:pure", "--write")
    assert done.exit_code == 1 and not (folder / "clutch.toml").exists()
    assert "only 1 of 12 settings" in done.stdout and "nothing is written" in done.stderr


def test_a_file_that_cannot_be_written_is_told_before_the_tuning(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune, "tune", interrupted)
    (folder / "clutch.toml").write_text("= 1")
    done = clutch("tune", "tasks:pure", "--write")
    assert done.exit_code == 2 and "clutch.toml cannot be read" in done.stderr
