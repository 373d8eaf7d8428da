"""Closed windows from the raw topics: pure processors, and the worker that drives them on Kafka."""
