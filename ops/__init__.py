"""Operation: the command line, telemetry, the local broker, the simulator and the fleet agents."""
