"""The fleet agent: what is idle on a host is offered while it is, and given back the moment it is wanted."""

from ops.agent.capacity_reporter import CapacityReporter

__all__ = ["CapacityReporter"]
