"""What the stream library and its client may say: errors, and none of them twenty times a second."""

import logging

NOISY_LOGGERS = ("faust", "mode", "aiokafka")
# Say the same many times a second while a broker is away or comes up.
REPEATING_LOGGERS = ("aiokafka", "aiokafka.consumer.group_coordinator", "aiokafka.consumer.fetcher")
REPEAT_S = 10.0


def quiet_libraries() -> None:
    """Let only errors through, and the same words once in REPEAT_S."""
    for name in NOISY_LOGGERS:
        logging.getLogger(name).setLevel(logging.ERROR)
    for name in REPEATING_LOGGERS:
        logging.getLogger(name).addFilter(_Seldom())


class _Seldom(logging.Filter):
    """Lets the same words through once in REPEAT_S."""

    def __init__(self) -> None:
        super().__init__()
        self._said_at_s: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is news."""
        known_s = self._said_at_s.get(str(record.msg))
        if known_s is not None and record.created - known_s < REPEAT_S:
            return False
        self._said_at_s[str(record.msg)] = record.created
        return True
