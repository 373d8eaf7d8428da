"""What could not be read or believed: looked at, brought back in, or given up. `intertidal dlq`."""
