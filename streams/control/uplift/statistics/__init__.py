"""Estimates and their intervals, over sums by bucket of users. Pure numpy."""
