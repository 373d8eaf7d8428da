"""A traffic file that cannot be used."""

from ops.simulator.toml_table import ScenarioError


class TrafficFileError(ScenarioError):
    """A file, or what was asked of it, cannot be used; the message names the file, the column or factor, and why."""
