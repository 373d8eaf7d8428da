"""Stream processing: windows from raw topics, control targets from windows."""
