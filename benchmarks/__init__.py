"""Measurements of single parts, each beside what it is to be compared with, in one run. No broker is needed."""
