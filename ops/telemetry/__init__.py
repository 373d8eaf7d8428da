"""Metrics, health, logs, progress and stop signals of every part. Imports nothing local, so all may use it."""
