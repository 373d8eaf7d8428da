"""What is committed, and that no crash at any point leads to a second result or to none."""

from hypothesis import given
from hypothesis import strategies as st

from ranking.router.progress import PartitionProgress, commit_metadata, results_floor
from schemas.kafka.offsets import OffsetTracker


def test_metadata_is_read_back_and_anything_else_is_none():
    assert results_floor(commit_metadata(17)) == 17
    for other in (None, "", "x", "[]", "{}", '{"v":2,"results":1}', '{"v":1,"results":"1"}', '{"v":1,"results":-1}'):
        assert results_floor(other) is None


def test_commit_is_the_lowest_unanswered_and_says_nothing_twice():
    progress = PartitionProgress(OffsetTracker(), floor=0, horizon=0, results_end=40)
    assert progress.commit() is None
    for offset in (5, 6, 7):
        progress.begin(offset)
    progress.finish(6, results_offset=40)
    assert progress.commit() == (5, commit_metadata(40))
    assert progress.commit() is None
    progress.finish(5, results_offset=41)
    assert progress.commit() == (7, commit_metadata(40))
    progress.finish(7)
    assert progress.commit() == (8, commit_metadata(42))


class Owner:
    """One owner after another of one partition: the logs outlive them, all else does not."""

    def __init__(self) -> None:
        self.num_requests = 0
        self.results: list[int] = []  # the request that each result belongs to
        self.committed: tuple[int, str] | None = None
        self.take_over()

    def take_over(self) -> None:
        floor = 0 if self.committed is None else results_floor(self.committed[1]) or 0
        self.answered = set(self.results[floor:])
        self.progress = PartitionProgress(
            OffsetTracker(), floor=floor, horizon=self.num_requests, results_end=len(self.results)
        )
        self.next = 0 if self.committed is None else self.committed[0]
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
        self.committed = self.progress.commit() or self.committed


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
    assert owner.committed == (1_000, commit_metadata(1_000))
