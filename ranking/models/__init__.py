"""Ranking models, their bundles of weights, and the scorer that replicas call."""
