"""Where a controller's records go: topic and key."""

from msgspec import Struct

from schemas.records import CandidateTarget, ControllerSnapshot, PoolSnapshot, SegmentUplift
from schemas.topics import CAPACITY_POOLS, CONTROL_STATE, CONTROL_TARGETS, SEGMENT_UPLIFT, Topic

OUTPUT_TOPICS: tuple[Topic, ...] = (CAPACITY_POOLS, SEGMENT_UPLIFT, CONTROL_TARGETS, CONTROL_STATE)


def destination(record: Struct) -> tuple[Topic, bytes]:
    """Topic and key of one output record."""
    match record:
        case PoolSnapshot():
            return CAPACITY_POOLS, f"{record.cell}/{record.accelerator}".encode()
        case SegmentUplift():
            return SEGMENT_UPLIFT, f"{record.cell}/{record.segment}".encode()
        case CandidateTarget():
            return CONTROL_TARGETS, record.cell.encode()
        case ControllerSnapshot():
            return CONTROL_STATE, record.cell.encode()
    raise AssertionError(f"a controller sends no {type(record).__name__}")
