"""Whether the topics of a controller are there, as the contract has them."""

from collections.abc import Callable, Iterable

from schemas.topics import CONTROL_WINDOWS, Namespace, planned_topics
from streams.control.outputs import OUTPUT_TOPICS


def checked_topics(require: Callable[[Iterable[str]], dict[str, int]], namespace: Namespace) -> dict[str, int]:
    """Partitions of each topic that the agent touches, as ``require`` finds them on the broker by name.

    Raises BrokerError when one is missing, ValueError when one has another number of partitions than the contract
    says: the table's and the windows' must be the same.
    """
    names = {namespace.topic(topic) for topic in (CONTROL_WINDOWS, *OUTPUT_TOPICS)}
    names |= {namespace.dead_letters(CONTROL_WINDOWS), namespace.control_changelog}
    num_partitions = require(names)
    for planned in planned_topics(namespace):
        actual = num_partitions.get(planned.name, planned.num_partitions)
        if actual != planned.num_partitions:
            raise ValueError(
                f"topic {planned.name} has {actual} partitions, should have {planned.num_partitions};"
                " `intertidal topics check` names each difference"
            )
    return num_partitions
