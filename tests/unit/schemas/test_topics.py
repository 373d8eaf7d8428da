"""Rules that every topic of the contract keeps."""

from schemas.topics import (
    RANKING_ANSWERS,
    RANKING_REQUESTS,
    RANKING_RESULTS,
    TOPICS,
    Namespace,
    planned_topics,
)


def test_names_are_unique() -> None:
    assert len({topic.name for topic in TOPICS}) == len(TOPICS)


def test_requests_answers_and_results_share_their_partitions() -> None:
    assert RANKING_REQUESTS.num_partitions == RANKING_ANSWERS.num_partitions == RANKING_RESULTS.num_partitions


def test_topics_carry_the_brokers_time() -> None:
    assert all(topic.config()["message.timestamp.type"] == "LogAppendTime" for topic in TOPICS)


def test_everything_that_is_used_is_planned_with_its_dead_letters_and_changelog() -> None:
    space = Namespace("replay.a.")
    names = [planned.name for planned in planned_topics(space)]
    assert len(names) == len(set(names)) == 2 * len(TOPICS) + 1
    assert all(name.startswith("replay.a.") for name in names)
    assert space.control_changelog in names
    assert {space.dead_letters(topic) for topic in TOPICS} < set(names)


def test_no_topic_of_a_namespace_is_one_of_the_live_pipeline() -> None:
    live = {planned.name for planned in planned_topics(Namespace())}
    assert live.isdisjoint(planned.name for planned in planned_topics(Namespace("replay.a.")))
    assert Namespace("replay.a.").group("ingest") != Namespace().group("ingest")
