"""The contract of Intertidal: topics, records, framing, partitioning, headers, dead letters and the gate."""
