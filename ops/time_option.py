"""A time as an option of a verb."""

import time

import click

from ops.times import parse_time_ms


class Time(click.ParamType):
    """Milliseconds since the Unix epoch, written as ISO 8601 with zone, or -15m."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return parse_time_ms(str(value), now_ms=time.time_ns() // 1_000_000)
        except ValueError as error:
            self.fail(str(error), param, ctx)
