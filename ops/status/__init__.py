"""What any running pipeline looks like now, read from its topics and groups: `intertidal status`."""
