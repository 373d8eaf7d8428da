"""The disclosure report: what borrowed capacity earned, what it cost, and what is not known."""
