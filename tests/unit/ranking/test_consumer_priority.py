"""Opportunistic replicas give way before they load anything heavy; replicas with base work never do."""

import os
import subprocess
import sys

import pytest

LOOK = """
import os, sys
from pathlib import Path
from ranking.consumer.priority import give_way
assert "torch" not in sys.modules, "too late: the heavy import is done"
assert "numpy" not in sys.modules
for _ in range(2):
    give_way(sys.argv[1].split(","), nice=int(sys.argv[2]), session=Path(sys.argv[3]))
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


def nice_of(routes, nice, *, session="/nowhere", leads=False):
    done = subprocess.run(
        [sys.executable, "-c", LOOK, routes, str(nice), str(session)],
        capture_output=True,
        text=True,
        check=True,
        start_new_session=leads,
    )
    return int(done.stdout)


@pytest.mark.parametrize(
    ("routes", "gives_way"), [("wide", True), ("powerful", True), ("baseline", False), ("baseline,wide", False)]
)
def test_who_gives_way(routes, gives_way):
    # Whoever runs the tests may have been given any priority.
    before = os.getpriority(os.PRIO_PROCESS, 0)
    assert nice_of(routes, 19) == (max(before, 19) if gives_way else before)


@pytest.mark.parametrize(
    ("routes", "leads", "said", "left"),
    [
        ("wide", True, "/autogroup-71 nice 0\n", "7"),
        # Of somebody else's session, as low already, or with base work: nothing is changed.
        ("wide", False, "/autogroup-71 nice 0\n", "/autogroup-71 nice 0\n"),
        ("wide", True, "/autogroup-71 nice 12\n", "/autogroup-71 nice 12\n"),
        ("baseline,wide", True, "/autogroup-71 nice 0\n", "/autogroup-71 nice 0\n"),
        ("wide", True, "nonsense", "nonsense"),
    ],
)
def test_the_level_of_the_own_session_is_lowered_where_the_kernel_weighs_sessions(tmp_path, routes, leads, said, left):
    session = tmp_path / "autogroup"
    session.write_text(said)
    nice_of(routes, 7, session=session, leads=leads)
    assert session.read_text() == left


def test_the_priority_is_lowered_before_pytorch_is_loaded():
    done = subprocess.run([sys.executable, "-c", CLI], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("False ('wide',) 5"), done.stdout + done.stderr
