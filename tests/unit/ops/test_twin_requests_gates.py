"""The gate in memory is the gate of the file: whatever is done to both, rankers see the same, and so does the agent."""

from hypothesis import given, settings
from hypothesis import strategies as st

from ops.twin.requests.engine import MS
from ops.twin.requests.gates import MemoryGate, RankerGate
from schemas.gate_reader import GateReader
from schemas.gate_writer import GateWriter

LEASE_NS = 200 * MS
STEP = st.sampled_from(["open", "renew", "close", "look", "acknowledge", "report"])


class Clock:
    now_ns = 1_000 * MS

    def __call__(self):
        return self.now_ns


def drains(report):
    """What a report says, whatever rankers are called in it."""
    drained = sorted((each.reaction_ns, each.drained_after_ns) for each in report.drained)
    return report.generation, report.closed_ns, drained, len(report.pending_pids)


@settings(deadline=None, max_examples=60)
@given(steps=st.lists(st.tuples(STEP, st.integers(1, 250)), max_size=25))
def test_it_does_what_the_file_does(steps, tmp_path_factory):
    clock = Clock()
    folder = tmp_path_factory.mktemp("gates")
    folder.chmod(0o700)
    memory = MemoryGate(ahead=lambda _: None, on_closed=lambda _: None)
    with (
        GateWriter("cpu", folder=folder, clock_ns=clock) as writer,
        GateReader("cpu", folder=folder, clock_ns=clock) as reader,
    ):
        ranker = RankerGate(memory, now_ns=clock.now_ns)
        for step, later_ms in steps:
            clock.now_ns += later_ms * MS
            if step == "open":
                writer.open(lease_s=LEASE_NS / 1e9)
                memory.open(clock.now_ns, lease_ns=LEASE_NS)
            elif step == "renew":
                assert writer.renew(lease_s=LEASE_NS / 1e9) == memory.renew(clock.now_ns, lease_ns=LEASE_NS)
            elif step == "close":
                writer.close()
                memory.close(clock.now_ns)
            elif step == "acknowledge" and reader.generation and reader.generation % 2 == 0:
                for end in (reader, ranker):
                    end.acknowledge(reader.generation, last_chunk_end_ns=clock.now_ns - MS, drained_ns=clock.now_ns)
            elif step == "report" and writer.generation and not writer.is_flipped_open:
                assert drains(memory.look(clock.now_ns)) == drains(writer.wait_drained(0.0))
            assert ranker.is_open(clock.now_ns) == reader.is_open(clock.now_ns)
            assert ranker.generation == reader.generation


def test_who_looks_ahead_tells_nothing_to_who_does_not():
    memory = MemoryGate(ahead=lambda _: None, on_closed=lambda _: None)
    memory.open(10, lease_ns=1_000)
    early, ahead = RankerGate(memory, now_ns=10), RankerGate(memory, now_ns=10)
    memory.close(50)
    assert not ahead.is_open(50)
    assert early.is_open(49)
    assert early.generation == 1
    ahead.acknowledge(2, last_chunk_end_ns=48, drained_ns=52)
    # Its word counts from the moment at which it was said.
    assert len(memory.look(51).pending_pids) == 2
    assert len(memory.look(52).pending_pids) == 1


def test_a_ranker_that_died_is_not_waited_for_and_one_that_came_later_owes_nothing():
    memory = MemoryGate(ahead=lambda _: None, on_closed=lambda _: None)
    memory.open(10, lease_ns=1_000)
    dead = RankerGate(memory, now_ns=10)
    memory.close(50)
    RankerGate(memory, now_ns=60)
    dead.die(70)
    assert memory.look(65).pending_pids
    report = memory.look(70)
    assert (len(report.dead_pids), report.pending_pids, report.drained) == (1, (), ())


def test_a_closing_is_told_and_a_look_has_the_agents_do_first_what_they_do_until_then():
    closings: list[int] = []
    looks: list[int] = []
    memory = MemoryGate(ahead=looks.append, on_closed=closings.append)
    memory.open(10, lease_ns=1_000)
    memory.close(20)
    memory.close(30)
    assert closings == [20]
    RankerGate(memory, now_ns=40).is_open(45)
    assert looks == [40, 40, 45]
