"""Gains of the control loop, found on the twin: identification, margins, and a rule from one to the other."""
