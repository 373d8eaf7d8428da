"""Measured times of the serving path, from which both levels of the twin calculate."""

from dataclasses import dataclass

from ranking.router.policy import RouterPolicy

_POLICY = RouterPolicy()


@dataclass(frozen=True, kw_only=True)
class ServiceTimes:
    """Times in milliseconds.

    ``hops_*``: request to result over three Kafka hops between processes, 200 messages/s of 10 kB on a two-core machine
    with one broker, each part polled as the pipeline polls: p50 2.4, p99 7 to 12 in repeated runs. ``task_ms``: what
    a task costs a replica beside its candidates (`ops.twin.requests.measure`). ``variation``: squared coefficient of
    variation of service times; requests carry like numbers of candidates, what varies is the machine. The shares are
    the router's own settings; ``pressed_load`` is what still reaches a replica that a single item presses: probes.
    """

    hops_median_ms: float = 2.4
    hops_p99_ms: float = 10.0
    task_ms: float = 0.3
    variation: float = 0.5
    pressure_knee: float = _POLICY.pressure_knee
    patience_share: float = _POLICY.patience_share
    optional_margin_ms: float = _POLICY.optional_margin_ms
    pressed_load: float = 0.02

    def allowed_ms(self, deadline_ms: float) -> float:
        """Time from sending optional work until its answer cannot count any more."""
        return self.patience_share * deadline_ms - self.optional_margin_ms
