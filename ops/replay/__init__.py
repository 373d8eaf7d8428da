"""Replays and backfills: the pure processors of ingest and control over logs of the past, into topics of a run."""
