"""The cells that a pipeline declares, read for a verb."""

from ops.connection import namespace
from ops.errors import UserError
from schemas.errors import RecordError
from schemas.framing import decode_as
from schemas.kafka.admin import BrokerError
from schemas.kafka.config import Config
from schemas.kafka.ranges import latest_by_key
from schemas.records import CellDeclaration
from schemas.topics import CONTROL_CELLS


def declared_cells(config: Config) -> dict[str, CellDeclaration]:
    """Last declaration of each cell, retired ones included; raises UserError."""
    topic = namespace().topic(CONTROL_CELLS)
    try:
        records = [decode_as(value, CellDeclaration) for value in latest_by_key(config, topic).values()]
    except BrokerError as error:
        raise UserError(str(error)) from error
    except RecordError as error:
        raise UserError(f"{topic}: {error}") from error
    return {record.cell: record for record in records}
