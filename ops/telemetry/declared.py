"""The one place where a metric's name, kind, meaning and labels stand. Parts, dashboards and docs read it."""

from typing import Final

from ops.telemetry.metrics import LATENCY_BUCKETS_S, Metric

METRICS: Final[tuple[Metric, ...]] = (
    # Every part that reads or writes topics.
    Metric("intertidal_records_read_total", "counter", "Records read, duplicates included.", ("topic",)),
    Metric("intertidal_records_sent_total", "counter", "Records acknowledged by the broker.", ("topic",)),
    Metric(
        "intertidal_dead_letters_total",
        "counter",
        "Records that could not be read or believed, by reason.",
        ("topic", "reason"),
    ),
    Metric("intertidal_duplicates_total", "counter", "Records seen before and dropped.", ("topic",)),
    Metric(
        "intertidal_read_lag_seconds",
        "gauge",
        "Age of the record last read, by append time.",
        ("topic", "partition"),
    ),
    # Stream processing.
    Metric("intertidal_windows_closed_total", "counter", "Windows closed and emitted.", ("cell", "kind")),
    Metric("intertidal_late_records_total", "counter", "Records behind the watermark.", ("topic",)),
    Metric("intertidal_ticks_total", "counter", "Controller decisions.", ("cell",)),
    Metric("intertidal_candidate_target", "gauge", "Candidates per request now asked for.", ("cell",)),
    Metric(
        "intertidal_split_mismatch",
        "gauge",
        "1 while the sample-ratio check of a segment fails, else 0; (all) is the cell.",
        ("cell", "segment"),
    ),
    Metric(
        "intertidal_guardrails_crossed",
        "gauge",
        "Guardrails that hold a lever of a segment at base.",
        ("cell", "segment"),
    ),
    Metric(
        "intertidal_shut_out_targets_total",
        "counter",
        "Targets not heard: of a controller that another has taken over from.",
        ("cell",),
    ),
    # Serving.
    Metric("intertidal_requests_total", "counter", "Requests taken in by the router.", ("cell",)),
    Metric(
        "intertidal_results_total",
        "counter",
        "Results published: complete, partial, late or error.",
        ("cell", "outcome"),
    ),
    Metric(
        "intertidal_answer_latency_seconds",
        "histogram",
        "Intake of a request to the last wanted answer.",
        ("cell",),
        LATENCY_BUCKETS_S,
    ),
    Metric(
        "intertidal_optional_units_total",
        "counter",
        "Optional items as they ended: admitted, shed, late or lost.",
        ("lever", "ending", "reason"),
    ),
    Metric("intertidal_base_retries_total", "counter", "Base work sent once more elsewhere.", ("cell",)),
    # Capacity.
    Metric("intertidal_gate_open", "gauge", "1 while the pool may be used, 0 while it may not.", ("pool",)),
    Metric("intertidal_reclaims_total", "counter", "Times the owner took the pool back.", ("pool",)),
    Metric(
        "intertidal_reclaim_reaction_seconds",
        "histogram",
        "Gate flip to the end of the last optional chunk, on the host's monotonic clock.",
        ("pool",),
        LATENCY_BUCKETS_S,
    ),
    Metric(
        "intertidal_memory_freed_seconds",
        "histogram",
        "A replica's device memory given back, since the gate's flip or the notice to stop.",
        ("cause",),
        LATENCY_BUCKETS_S,
    ),
    # Fleet agents.
    Metric("intertidal_spool_records", "gauge", "Records that the broker has not acknowledged yet."),
    Metric("intertidal_spool_bytes", "gauge", "Size of the spool, in memory and on disk."),
    Metric("intertidal_spool_dropped_total", "counter", "Records dropped by a full spool: beats or changes.", ("log",)),
    Metric("intertidal_source_failures_total", "counter", "Times a source could not be read.", ("source",)),
    Metric("intertidal_clock_jumps_total", "counter", "Times the wall clock jumped by more than a second."),
)
