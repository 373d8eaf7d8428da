"""Logged bandit feedback as results and outcomes in topics of an import, and what the pipeline measures in them."""
