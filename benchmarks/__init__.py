"""Measurements of single parts and of the path of a request, each beside what it is to be compared with, in one run."""
