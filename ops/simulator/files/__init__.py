"""Real files as a scenario's traffic: arrivals of requests, a fleet's idle capacity, candidates per request.

Readers stream and are bounded; a row that is not as it should be is counted and named, and never ends a run.
docs/real-files.md says what is read and what is made of it.
"""
