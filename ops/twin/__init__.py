"""The twin: a scenario simulated on a fake clock, driving the controller that runs in production, with no Kafka.

Two levels of detail fill the same record: by tick (queues as fluids between windows, for fleets) and by request.
"""
