"""Metrics, health, logs and progress of every part. Imports nothing local, so every package may use it."""
