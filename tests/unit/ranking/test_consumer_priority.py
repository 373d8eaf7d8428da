"""Opportunistic replicas give way before they load anything heavy; replicas with base work never do."""

import os
import subprocess
import sys

import pytest

LOOK = """
import os, sys
from ranking.consumer.priority import give_way
assert "torch" not in sys.modules, "too late: the heavy import is done"
assert "numpy" not in sys.modules
give_way(sys.argv[1].split(","), nice=int(sys.argv[2]))
give_way(sys.argv[1].split(","), nice=int(sys.argv[2]))
print(os.getpriority(os.PRIO_PROCESS, 0))
"""
CLI = """
import os, sys
from click.testing import CliRunner
import ops.run_cli as cli
import ranking.consumer.priority as priority
def look(routes, nice):
    print("torch" in sys.modules, routes, nice)
    raise SystemExit
priority.give_way = look
os.environ["KAFKA_BOOTSTRAP"] = "127.0.0.1:1"
result = CliRunner().invoke(cli.run, ["ranker", "--route", "wide", "--cell", "c", "--bundle", "/"])
print(result.output)
"""


def nice_of(routes, nice):
    done = subprocess.run([sys.executable, "-c", LOOK, routes, str(nice)], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.parametrize(
    ("routes", "gives_way"), [("wide", True), ("powerful", True), ("baseline", False), ("baseline,wide", False)]
)
def test_who_gives_way(routes, gives_way):
    # Whoever runs the tests may have been given any priority.
    before = os.getpriority(os.PRIO_PROCESS, 0)
    assert nice_of(routes, 19) == (max(before, 19) if gives_way else before)


def test_the_priority_is_lowered_before_pytorch_is_loaded():
    done = subprocess.run([sys.executable, "-c", CLI], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("False ('wide',) 5"), done.stdout + done.stderr
