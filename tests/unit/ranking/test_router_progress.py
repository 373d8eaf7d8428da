"""What is committed, and that no crash at any point leads to a second result or to none."""

from hypothesis import given
from hypothesis import strategies as st

from ranking.handover import Takeover, commit_metadata, results_floor
from ranking.router.lagging_end import LaggingEnd
from ranking.router.progress import PartitionProgress
from schemas.kafka.offsets import OffsetTracker


def test_metadata_is_read_back_and_anything_else_is_none():
    assert results_floor(commit_metadata(17)) == 17
    for other in (None, "", "x", "[]", "{}", '{"v":2,"results":1}', '{"v":1,"results":"1"}', '{"v":1,"results":-1}'):
        assert results_floor(other) is None


HORIZON_MS = 60_000.0


def progress_of(*, start=0, floor=0, horizon=0, results_end=0, max_remembered=10_000):
    takeover = Takeover(start=start, floor=floor, horizon=horizon, results_end=results_end)
    return PartitionProgress(
        OffsetTracker(), takeover, duplicate_horizon_ms=HORIZON_MS, max_remembered_results=max_remembered
    )


def test_commit_is_the_lowest_unanswered_and_says_nothing_twice():
    progress = progress_of(floor=40, results_end=40)
    assert progress.commit(0.0) is None
    for offset in (5, 6, 7):
        progress.begin(offset)
    progress.finish(6, results_offset=40)
    assert progress.commit(0.0) == (5, commit_metadata(40))
    assert progress.commit(0.0) is None
    progress.finish(5, results_offset=41)
    assert progress.commit(0.0) == (7, commit_metadata(40))
    progress.finish(7)
    assert progress.commit(0.0) == (8, commit_metadata(40))
    assert progress.commit(HORIZON_MS) is None
    assert progress.commit(2 * HORIZON_MS) == (8, commit_metadata(42))


def test_the_floor_stays_behind_the_results_of_the_duplicate_horizon():
    """Else the next owner would answer a request again that its caller sends once more."""
    progress = progress_of()
    for second in range(200):
        progress.begin(second)
        progress.finish(second, results_offset=second)
        offset, metadata = progress.commit(second * 1_000.0)
        assert offset == second + 1
        assert results_floor(metadata) == max(0, second + 1 - 60)


def test_what_a_new_owner_must_read_is_bounded_by_a_number_as_well():
    progress = progress_of(max_remembered=100)
    for number in range(1_000):
        progress.begin(number)
        progress.finish(number, results_offset=number)
    assert progress.commit(10.0) == (1_000, commit_metadata(900))


def test_the_bound_never_hides_the_result_of_an_unanswered_stretch():
    progress = progress_of(max_remembered=10)
    progress.begin(0)
    for number in range(1, 100):
        progress.begin(number)
        progress.finish(number, results_offset=number - 1)
    assert progress.commit(HORIZON_MS * 2) == (0, commit_metadata(0))


def test_a_position_can_be_committed_before_anything_was_taken_in():
    progress = progress_of(start=17, floor=3, horizon=20, results_end=9)
    assert progress.position(0.0) == (17, commit_metadata(3))
    assert progress.commit(0.0) is None
    progress.begin(17)
    assert progress.position(0.0) == (17, commit_metadata(3))
    progress.finish(17, results_offset=9)
    assert progress.commit(0.0) == (18, commit_metadata(3))
    assert progress.position(0.0) == (18, commit_metadata(3))


def test_an_end_that_lags_is_what_it_was():
    end = LaggingEnd(5, horizon_ms=10_000.0, max_records=1_000)
    for second, now in enumerate((7, 9, 12, 20, 21)):
        end.note(now, second * 1_000.0)
    assert end.value(9_999.0) == 5
    assert end.value(10_000.0) == 7
    assert end.value(12_500.0) == 12
    assert end.value(99_000.0) == 21


class Owner:
    """One owner after another of one partition: the logs outlive them, all else does not."""

    def __init__(self) -> None:
        self.num_requests = 0
        self.now_ms = 0.0
        self.results: list[int] = []  # the request that each result belongs to
        self.committed: tuple[int, str] | None = None
        self.take_over()

    def take_over(self) -> None:
        floor = 0 if self.committed is None else results_floor(self.committed[1]) or 0
        self.answered = set(self.results[floor:])
        self.next = 0 if self.committed is None else self.committed[0]
        self.progress = progress_of(
            start=self.next, floor=floor, horizon=self.num_requests, results_end=len(self.results)
        )
        self.open: list[int] = []

    def take(self) -> None:
        if self.next < self.num_requests:
            self.progress.begin(self.next)
            if self.next in self.answered:
                self.progress.finish(self.next)
            else:
                self.open.append(self.next)
            self.next += 1

    def finish(self, choice: int) -> None:
        if self.open:
            offset = self.open.pop(choice % len(self.open))
            self.results.append(offset)
            self.progress.finish(offset, results_offset=len(self.results) - 1)

    def commit(self) -> None:
        self.now_ms += 500.0
        self.committed = self.progress.commit(self.now_ms) or self.committed


def test_a_second_takeover_still_finds_what_the_first_owner_answered():
    owner = Owner()
    owner.num_requests = 2
    owner.take()
    owner.take()
    owner.finish(1)
    owner.take_over()
    owner.take()
    owner.commit()
    assert owner.committed == (0, commit_metadata(0))
    owner.take_over()
    owner.take()
    owner.take()
    owner.finish(0)
    assert owner.open == []
    assert owner.results == [1, 0]


STEPS = st.lists(
    st.tuples(st.sampled_from(["append", "take", "take", "finish", "finish", "commit", "crash"]), st.integers(0, 50)),
    max_size=200,
)


@given(steps=STEPS)
def test_each_request_has_one_result_whatever_crashes(steps):
    owner = Owner()
    for step, choice in steps:
        if step == "append":
            owner.num_requests += 1
        elif step == "take":
            owner.take()
        elif step == "finish":
            owner.finish(choice)
        elif step == "commit":
            owner.commit()
        else:
            owner.take_over()
    owner.take_over()
    while owner.next < owner.num_requests:
        owner.take()
    while owner.open:
        owner.finish(0)
    assert sorted(owner.results) == list(range(owner.num_requests))


def test_the_floor_moves_on_so_that_takeovers_stay_short():
    owner = Owner()
    for _ in range(1_000):
        owner.num_requests += 1
        owner.take()
        owner.finish(0)
        owner.commit()
    # Two a second here: the horizon of a minute, to the second.
    assert owner.committed is not None
    assert owner.committed[0] == 1_000
    assert 1_000 - 122 <= (results_floor(owner.committed[1]) or 0) <= 1_000 - 120
