"""Which partitions have been silent long enough to be told the time. Pure: times are passed in."""


class SilenceWatch:
    """Watches one partition on the reader's monotonic clock.

    Silence counts only at the end of the partition: behind it the clock is in the records that are still to be read.
    What counts as a sound is a record that moved the partition's clock, so that refused records do not hold it up.
    """

    def __init__(self, *, silence_s: float, now_s: float) -> None:
        self._silence_s = silence_s
        self._quiet_since_s = now_s
        self._at_end = False

    def records_read(self, *, clock_moved: bool, now_s: float) -> None:
        """Note a batch read."""
        self._at_end = False
        if clock_moved:
            self._quiet_since_s = now_s

    def end_reached(self) -> None:
        """Note that everything in the partition has been read."""
        self._at_end = True

    def needs_clock(self, now_s: float) -> bool:
        """Whether a clock record is due; saying so counts as a sound, so that the next one is due as long after."""
        if not self._at_end or now_s - self._quiet_since_s < self._silence_s:
            return False
        self._quiet_since_s = now_s
        return True
