"""Reading any topic of the contract: as JSON lines, or into Parquet and Arrow files that a restart goes on with."""
