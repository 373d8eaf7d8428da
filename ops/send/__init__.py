"""JSON lines in, validated and acknowledged records out: `intertidal send`."""
