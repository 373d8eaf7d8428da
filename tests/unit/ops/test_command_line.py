"""Exit codes, one-line errors and late imports of the command line, most of them in a process of its own."""

import subprocess
import sys
from pathlib import Path

import click
import pytest

from ops import cli
from ops.errors import UserError


def run(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "ops.cli", *arguments]
    environment.setdefault("PATH", "/usr/bin:/bin")
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def call(command: click.Command, monkeypatch: pytest.MonkeyPatch) -> int:
    """Runs the command as the verb `broker`."""
    monkeypatch.setattr(cli._Verbs, "get_command", lambda *_: command)
    return cli.main(["broker"])


def test_help_lists_every_verb_and_loads_nothing_heavy() -> None:
    script = (
        "import sys; from ops.cli import main; code = main(['--help'])\n"
        "heavy = {'torch', 'faust', 'numpy', 'confluent_kafka', 'rich', 'prometheus_client'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "assert not [name for name in sys.modules if name.startswith(('streams', 'ranking', 'schemas'))]\n"
        "sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    for name, verb in cli.VERBS.items():
        assert f"  {name}" in done.stdout
        assert verb.summary in done.stdout


@pytest.mark.parametrize("verb", ["broker", "doctor"])
def test_every_help_has_an_example(verb: str) -> None:
    done = run(verb, "--help")
    assert done.returncode == 0
    assert f"intertidal {verb}" in done.stdout.split("Example:")[1]


@pytest.mark.parametrize("arguments", [("nonsense",), ("broker", "start", "--port", "x"), ("doctor", "--nonsense")])
def test_wrong_use_is_one_line_and_exit_code_2(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("intertidal")
    assert done.stderr.count("\n") == 1


def test_a_missing_java_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    done = run("broker", "start", PATH="/nonexistent", INTERTIDAL_BROKER="jvm", INTERTIDAL_STATE_DIR=str(tmp_path))
    assert done.returncode == 1
    assert "apt-get install" in done.stderr
    assert done.stderr.count("\n") == 1


def test_status_of_a_broker_that_was_never_started(tmp_path: Path) -> None:
    done = run("broker", "status", INTERTIDAL_STATE_DIR=str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (1, "not running\n", "")


def test_a_users_error_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    @click.command()
    def verb() -> None:
        raise UserError("first\nsecond")

    assert call(verb, monkeypatch) == 1
    assert capsys.readouterr().err == "intertidal: first second\n"


def test_a_defect_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def verb() -> None:
        raise KeyError("a defect")

    with pytest.raises(KeyError):
        call(verb, monkeypatch)


@pytest.mark.parametrize(
    ("module", "extra"), [("torch", "ranking"), ("faust.app", "streams"), ("docker.errors", "demo")]
)
def test_a_missing_extra_is_named(
    module: str, extra: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @click.command()
    def verb() -> None:
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    assert call(verb, monkeypatch) == 1
    assert capsys.readouterr().err == f"intertidal: {module} is not installed: pip install 'intertidal[{extra}]'\n"


def test_a_missing_module_of_our_own_is_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def verb() -> None:
        raise ModuleNotFoundError("No module named 'ops.lost'", name="ops.lost")

    with pytest.raises(ModuleNotFoundError):
        call(verb, monkeypatch)


def test_an_interrupt_is_exit_code_130(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def verb() -> None:
        raise KeyboardInterrupt

    assert call(verb, monkeypatch) == 130


def test_a_verb_may_return_its_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def verb() -> int:
        return 1

    assert call(verb, monkeypatch) == 1


@pytest.mark.parametrize("write", ["click.echo", "sys.stdout.write"])
def test_a_reader_that_went_away_is_quiet(write: str) -> None:
    script = (
        "import sys, click\n"
        "from ops import cli\n"
        f"verb = click.Command('broker', callback=lambda: {write}('x') and None)\n"
        "cli._Verbs.get_command = lambda *_: verb\n"
        "sys.exit(cli.main(['broker']))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        env={"PYTHONUNBUFFERED": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(timeout=60) == cli.EXIT_FAILED
