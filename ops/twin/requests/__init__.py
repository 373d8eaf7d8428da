"""The twin by request: every request played through the real router, planner, gate logic, ingest and controller.

Only what surrounds them is made up: the clock, the logs, the time that scoring takes, and the world that asks.
"""
