"""What an import says of itself: the JSON document, and the same in lines. Pure."""

from collections.abc import Iterator

from msgspec import Struct

from ops.bandit_import.run_log import Progress
from ops.bandit_import.survey import FileSurvey, PolicySurvey, Survey


class ImportDocument(Struct, frozen=True, kw_only=True):
    """The JSON of `import open-bandit`. ``progress`` is null where nothing was asked of a broker that knows of it.

    ``state`` is ``planned``, ``unfinished`` or ``done``; ``namespace`` is that under which other verbs find it.
    """

    run: str
    namespace: str
    campaign: str
    state: str
    cells: list[str]
    min_propensity: float
    survey: Survey
    progress: Progress
    notes: list[str]


def notes_of(survey: Survey, *, min_propensity: float) -> list[str]:
    """What a reader must know of a log, a sentence each."""
    zones = sorted({zone for file in survey.files for zone in file.zones})
    notes = [
        "the log has no user ids: each row is a user of its own, so intervals cannot know whose rows are alike",
        f"times are written in {', '.join(zones) or 'no zone'}; windows are in UTC",
        "value is not in the log: it is 0 everywhere, as are latencies",
    ]
    notes += [
        f"{policy.policy}: propensities below {min_propensity:g} are counted as {min_propensity:g}: "
        f"{policy.num_clipped:,} of {policy.num_rows:,} rows"
        for policy in survey.policies
        if policy.num_clipped
    ]
    notes += [
        f"{policy.policy}: mean propensities of the items sum to "
        f"{', '.join(f'{total:.3f} at position {position}' for position, total in policy.propensity_sums.items())}"
        for policy in survey.policies
        if any(abs(total - 1.0) > 0.01 for total in policy.propensity_sums.values())
    ]
    if len(survey.policies) < 2:
        notes.append("one policy alone: there is nothing to compare it with")
    return notes


def lines(document: ImportDocument) -> Iterator[str]:
    """The document for a person."""
    survey = document.survey
    yield f"import of {survey.num_rows:,} rows of {document.campaign} into {document.namespace}*"
    yield from map(_file_line, survey.files)
    yield from map(_policy_line, survey.policies)
    if survey.num_bad:
        yield f"{survey.num_bad:,} bad lines are left out:"
        yield from (f"  {bad.file}:{bad.line}: {bad.reason}" for bad in survey.bad_lines)
        if survey.num_bad > len(survey.bad_lines):
            yield f"  and {survey.num_bad - len(survey.bad_lines):,} more"
    yield from (f"note: {note}" for note in document.notes)
    measured = document.progress.measured
    if measured is not None:
        yield (
            f"done: {document.progress.num_records:,} records, {measured.num_windows:,} windows, "
            f"{measured.num_segments} segments; {measured.num_late:,} late, {measured.num_duplicates:,} duplicates, "
            f"{measured.num_refused:,} refused"
        )
        yield f"  INTERTIDAL_NAMESPACE={document.namespace} intertidal report"
    elif document.state == "unfinished":
        yield f"so far {document.progress.num_rows:,} of {survey.num_rows:,} rows"


def _file_line(file: FileSurvey) -> str:
    return (
        f"  {file.file}  {file.policy}, arm {file.arm}: {file.num_rows:,} rows, {file.first} to {file.last}; "
        f"{file.num_bad:,} bad, {file.num_unordered:,} out of order, {file.num_same_time:,} at the same time"
    )


def _policy_line(policy: PolicySurvey) -> str:
    return (
        f"  {policy.policy}: {policy.num_clicks:,} clicks; propensities {policy.min_propensity:g} to "
        f"{policy.max_propensity:g}; by 1 / propensity {policy.num_rows:,} rows are worth "
        f"{policy.effective_sample_size:,.0f}, one carries {policy.largest_share:.1%}; "
        f"with {policy.num_clipped:,} clipped {policy.counted_effective_sample_size:,.0f} and "
        f"{policy.counted_largest_share:.1%}"
    )
