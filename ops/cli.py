"""The command `intertidal`. Verbs are imported when called: an agent's host never loads torch or Faust."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Final

import click

from ops.errors import UserError

EXIT_DONE: Final = 0
EXIT_FAILED: Final = 1
EXIT_WRONG_USE: Final = 2
# As a shell reports a death by SIGINT.
EXIT_INTERRUPTED: Final = 130


@dataclass(frozen=True, slots=True)
class Verb:
    """Where a verb lives, as module:attribute, and its one line in the list."""

    target: str
    summary: str


VERBS: Final[dict[str, Verb]] = {
    "demo": Verb("ops.demo.cli:demo", "Run the whole pipeline on a local Kafka and report what happened."),
    "broker": Verb("ops.broker.cli:broker", "Start, stop and look at a local Kafka."),
    "topics": Verb("ops.topics_cli:topics", "Create, list and check the topics of the contract."),
    "cells": Verb("ops.cells_cli:cells", "Declare, list and retire cells."),
    "control": Verb("ops.control_cli:control", "Hold the targets of cells, let them go, and list what is held."),
    "run": Verb("ops.run_cli:run", "Run one long-running part."),
    "model": Verb("ops.model_cli:model", "Check, describe and measure a bundle of a ranking model."),
    "simulate": Verb("ops.twin.cli:simulate_command", "Play a scenario on a fake clock, far faster than real time."),
    "tune": Verb("ops.tune.cli:tune_command", "Find gains of the control loop on the twin, with margins."),
    "agent": Verb("ops.agent.cli:agent", "Check what a fleet agent sent against the contract."),
    "reclaim": Verb("ops.agent.reclaim_cli:reclaim", "Take a pool of this host back, and wait until it is free."),
    "read": Verb("ops.read_cli:read", "Read a topic as JSON lines, or into Parquet or Arrow files."),
    "send": Verb("ops.send_cli:send", "Send JSON lines from stdin as validated records."),
    "dlq": Verb("ops.dlq_cli:dlq", "List, show, redrive and discard dead letters."),
    "replay": Verb("ops.replay_cli:replay", "Run ingest and control over logs of the past."),
    "import": Verb("ops.import_cli:import_group", "Turn logs of others into results and outcomes, and measure them."),
    "report": Verb("ops.report_cli:report", "Say what borrowed capacity earned, as a page and as JSON."),
    "train": Verb("ops.train_cli:train_command", "Train a ranking model from logs, or from the built-in world."),
    "status": Verb("ops.status.cli:status", "Show cells, targets, pools, lag, and what is stale and why."),
    "doctor": Verb("ops.doctor:doctor", "Say what is missing on this machine and how to get it."),
}

# Which extra brings which module.
_EXTRAS: Final = {
    "faust": "streams",
    "mode": "streams",
    "rocksdict": "streams",
    "safetensors": "ranking",
    "torch": "ranking",
    "highspy": "streams",
    "matplotlib": "twin",
    "pyarrow": "files",
    "pynvml": "nvml",
    "docker": "demo",
    "requests": "demo",
    "testcontainers": "demo",
}


class _Verbs(click.Group):
    """A group that knows its verbs by name and imports one only to call it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        verb = VERBS.get(cmd_name)
        if verb is None:
            return None
        module, _, attribute = verb.target.partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl([(name, verb.summary) for name, verb in VERBS.items()])


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="intertidal")
def cli() -> None:
    """Spends idle, revocable capacity on better ad ranking, and gives it back in milliseconds.

    \b
    Example:
      intertidal doctor
      intertidal demo --seconds 90
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one verb and returns the exit code: 0 done, 1 failed, 2 wrong use.

    What a person can put right is one line on stderr. Anything else is a defect and keeps its traceback.
    A verb may return its own exit code.
    """
    try:
        result = cli.main(arguments, prog_name="intertidal", standalone_mode=False)
        # Now, not when Python exits: a reader that went away is no defect, and click is quiet about it too.
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return EXIT_WRONG_USE
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "intertidal"
        return _complain(f"{command}: {error.format_message()} See {command} --help.", EXIT_WRONG_USE)
    except click.ClickException as error:
        return _complain(f"intertidal: {error.format_message()}", EXIT_FAILED)
    except UserError as error:
        return _complain(f"intertidal: {error}", EXIT_FAILED)
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        return _complain(f"intertidal: {error.name} is not installed: pip install 'intertidal[{extra}]'", EXIT_FAILED)
    except (click.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # Python flushes stdout once more when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    return result if isinstance(result, int) else EXIT_DONE


def _complain(message: str, exit_code: int) -> int:
    """Prints one line whatever the message holds, and returns the exit code."""
    click.echo(" ".join(message.split()), err=True)
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
