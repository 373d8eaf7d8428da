"""The hand-over between the threads that read and the one that scores: bounded, in order, nothing lost on the way."""

import threading

import pytest

from ranking.consumer.waiting_room import WaitingRoom
from tests.unit.ranking.consumer_fakes import MS, FakeClock, base_task, optional_task


def a_room(clock: FakeClock | None = None) -> WaitingRoom:
    return WaitingRoom(("wide", "baseline"), max_waiting=4, clock_ns=FakeClock() if clock is None else clock)


def names(tasks: object) -> list[str]:
    return [task.work.request_id for task in tasks]  # type: ignore[attr-defined]


def test_a_batch_is_all_that_waits_with_base_work_first() -> None:
    room = a_room()
    room.put("wide", [optional_task("o1", values=[1]), optional_task("o2", values=[1])])
    room.put("baseline", [base_task("b1"), base_task("b2")])
    assert names(room.take(0.0)) == ["b1", "b2", "o1", "o2"]
    assert room.take(0.0) == []


def test_the_time_in_the_room_is_part_of_the_wait() -> None:
    clock = FakeClock()
    room = a_room(clock)
    room.put("baseline", [base_task("b", taken_ms=-1)])
    clock.now_ns = 7 * MS
    assert [task.taken_ns for task in room.take_base()] == [7 * MS]


def test_base_work_is_taken_between_chunks_and_the_rest_stays() -> None:
    room = a_room()
    assert room.take_base() == []
    room.put("wide", [optional_task("o", values=[1])])
    assert room.take_base() == []
    room.put("baseline", [base_task("b")])
    assert names(room.take_base()) == ["b"]
    assert names(room.take(0.0)) == ["o"]


def test_there_are_so_many_places_and_no_more() -> None:
    room = a_room()
    room.put("wide", [optional_task(f"o{number}", values=[1]) for number in range(3)])
    assert room.await_places("wide", 0.0) == 1
    room.put("wide", [optional_task("o3", values=[1])])
    assert room.await_places("wide", 0.0) == 0
    assert room.await_places("baseline", 0.0) == 4
    assert len(room.take(0.0)) == 4
    assert room.await_places("wide", 0.0) == 4


def test_what_is_forgotten_is_counted_and_never_taken() -> None:
    room = a_room()
    room.put("wide", [optional_task("o", values=[1])])
    room.put("baseline", [base_task("b1"), base_task("b2")])
    assert room.clear("baseline") == 2
    assert names(room.take(0.0)) == ["o"]


def test_a_reader_that_failed_ends_the_one_that_scores() -> None:
    room = a_room()
    room.fail(ValueError("first"))
    room.fail(ValueError("second"))
    with pytest.raises(ValueError, match="first"):
        room.take(60.0)


def test_waiting_ends_at_once_when_work_or_a_place_comes() -> None:
    """Both sides wait with a limit that no test lives to see."""
    room, taken, places = a_room(), [], []
    scoring = threading.Thread(target=lambda: taken.extend(room.take(600.0)))
    scoring.start()
    room.put("wide", [optional_task(f"o{number}", values=[1]) for number in range(4)])
    scoring.join(60.0)
    assert len(taken) == 4
    room.put("wide", taken)
    reading = threading.Thread(target=lambda: places.append(room.await_places("wide", 600.0)))
    reading.start()
    room.take(0.0)
    reading.join(60.0)
    assert places == [4]
