"""Threads that read: none of them ends, or hangs, without being missed, and none takes another along."""

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from ops.agent.claim_files import holds_in, notice_time_ms
from ops.agent.readings import Reading, readings_of_json
from ops.agent.sampler import Sampler
from schemas.errors import RecordError

READING = Reading(pool="p", accelerator="h200", units=1.0)
DEEP = "[" * 4_000


class Odd:
    """A source that fails as nobody expects, or waits for ``goes_on``."""

    name = "odd"
    every_s = 0.001

    def __init__(self, *, fails: bool = False) -> None:
        self.fails = fails
        self.goes_on = threading.Event()
        self.is_read = threading.Event()

    def read(self, own_pids: frozenset[int]) -> Sequence[Reading]:
        if self.fails:
            raise RecursionError("too deep")
        self.is_read.set()
        self.goes_on.wait()
        return [READING]

    def close(self) -> None:
        self.goes_on.set()


class Well(Odd):
    name = "well"

    def read(self, own_pids: frozenset[int]) -> Sequence[Reading]:
        return [READING]


def test_an_error_that_nobody_expects_is_the_sources_problem_and_it_is_read_again() -> None:
    source = Odd(fails=True)
    sampler = Sampler([source], wake=lambda: None)
    sampler.read_due(source)
    assert sampler.problems == {"odd": "odd: RecursionError: too deep"}
    assert sampler.num_failures == {"odd": 1}


def test_a_source_that_hangs_holds_up_no_other_and_is_named() -> None:
    now_s = [0.0]
    odd, woken = Odd(), threading.Event()
    sampler = Sampler([odd, Well()], wake=woken.set, clock_s=lambda: now_s[0])
    sampler.start()
    assert odd.is_read.wait(60.0)
    assert woken.wait(60.0)
    assert sampler.take() == [READING]
    assert sampler.problems == {}
    now_s[0] = 11.0
    assert sampler.problems == {"odd": "odd: has been read for 11 s"}
    assert sampler.died() is None
    odd.goes_on.set()
    sampler.close()
    assert sampler.died() == "the threads of these sources ended: odd, well"


def test_what_is_nested_too_deep_is_no_reading() -> None:
    with pytest.raises(RecordError, match="malformed"):
        readings_of_json(DEEP)


def test_what_is_nested_too_deep_claims_now(tmp_path: Path) -> None:
    assert notice_time_ms(f'{{"a":{DEEP}'.encode()) == 0
    (tmp_path / "p.hold").write_text(f'{{"a":{DEEP}')
    (hold,) = holds_in(tmp_path, 1)
    assert hold.reason == "unreadable_hold"
