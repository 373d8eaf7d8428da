"""A caller's mistake that only a replica can see: said in its answer's error, and told from a failure by its beginning.

No other replica would do better, so the router sends the work to none: the result names the mistake.
"""

_PREFIX = "request: "


def answer_error(mistake: str) -> str:
    """The error of an answer whose request cannot be scored by any replica of the model."""
    return _PREFIX + mistake


def mistake_in(error: str) -> str:
    """The caller's mistake that an answer's error names; empty where it names none."""
    return error[len(_PREFIX) :] if error.startswith(_PREFIX) else ""
