"""Callers name cells: an invented one is served its base work, and leaves nothing behind."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from ranking.client.cell_table import CellTable
from ranking.client.cells import CellsView
from ranking.consumer.measures import FORGET_AFTER_INTERVALS, MAX_OTHER_CELLS, Measures
from ranking.consumer.progress import Progress
from ranking.router.cell_intervals import FORGET_AFTER_MS, MAX_CELLS
from ranking.router.instruments import Instruments
from schemas.framing import Decoder, encode
from schemas.records import CellDeclaration, CellLimits, CellRevision
from schemas.topics import CONTROL_CELLS
from tests.unit.ranking.consumer_fakes import base_task
from tests.unit.ranking.router_driver import START_MS, Driver, request_of, target_of

WINDOW_MS = 10_000


def declaration(cell, *, from_window=0, until_window=None):
    limits = CellLimits(base_candidates=100, max_candidates=400, latency_limit_ms=300.0)
    revisions = [CellRevision(from_window=from_window, limits=limits)]
    return CellDeclaration(cell=cell, window_ms=WINDOW_MS, revisions=revisions, until_window=until_window)


def table_of(*declarations, is_read=True):
    table = CellTable(lambda: is_read)
    for entry in declarations:
        table.update(entry)
    return table


def serve(driver, name, cell):
    for sent in driver.request(request_of(name, cell=cell, now_ms=driver.now_ms)):
        driver.answer(sent)


def reported(driver):
    driver.intervals.clear()
    driver.advance(driver.now_ms + 1_000)
    return sorted({interval.cell for interval in driver.intervals})


def test_an_undeclared_cell_has_its_base_work_and_no_extras_and_is_not_reported():
    driver = Driver(cells=table_of(declaration("us-east")))
    for cell in ("us-east", "invented"):
        driver.core.targets.update(target_of(350, cell=cell))
        serve(driver, f"to-{cell}", cell)
    known, invented = driver.results
    assert (known.status, known.dose) == ("ok", 250)
    assert (invented.status, invented.degraded, invented.dose, invented.num_candidates_ranked) == ("ok", False, 0, 100)
    assert reported(driver) == ["us-east"]


@pytest.mark.parametrize("is_read", [False, True])
def test_any_cell_passes_while_nothing_is_known_of_cells(is_read):
    table = table_of(*(() if is_read else (declaration("us-east"),)), is_read=is_read)
    driver = Driver(cells=table)
    driver.core.targets.update(target_of(350, cell="any"))
    serve(driver, "r", "any")
    assert driver.results[0].dose == 250
    assert reported(driver) == ["any"]


def test_a_cell_is_declared_from_its_declaration_until_it_is_retired():
    table = table_of(declaration("new", from_window=10**6), declaration("old", until_window=5), declaration("gone"))
    assert table.is_declared("new", 0.0)
    assert table.is_declared("old", 5 * WINDOW_MS - 1)
    assert not table.is_declared("old", 5 * WINDOW_MS)
    table.remove("gone")
    assert not table.is_declared("gone", 0.0)


def test_a_flood_of_invented_cells_is_bounded_where_none_is_declared():
    driver = Driver()
    for number in range(MAX_CELLS + 50):
        serve(driver, f"r{number}", f"invented-{number}")
    assert len(driver.results) == MAX_CELLS + 50
    assert len(reported(driver)) == MAX_CELLS
    driver.advance(driver.now_ms + FORGET_AFTER_MS + 2_000)
    assert reported(driver) == []
    serve(driver, "later", "another")
    assert reported(driver) == ["another"]


def test_accounts_of_a_cell_that_retires_meanwhile_still_close():
    table = table_of(declaration("us-east"))
    driver = Driver(cells=table)
    driver.core.targets.update(target_of(350))
    base, _wide = driver.request()
    driver.answer(base)
    table.update(declaration("us-east", until_window=0))
    driver.advance(START_MS + 5_000)
    assert driver.totals() == {"offered": 250, "lost": 250}


def test_metric_labels_are_bounded():
    driver = Driver()
    serve(driver, "r", "us-east")
    (result,) = driver.results
    instruments = Instruments()
    for number in range(2 * MAX_CELLS):
        instruments.result(_renamed(result, f"cell-{number}"), is_reported=True)
        instruments.result(_renamed(result, f"invented-{number}"), is_reported=False)
    text = instruments.render().decode()
    cells = {line.split('cell="')[1].split('"')[0] for line in text.splitlines() if 'cell="' in line}
    assert len(cells) == MAX_CELLS + 1
    assert "other" in cells
    assert not any(cell.startswith("invented") for cell in cells)


def _renamed(result, cell):
    return replace(result, cell=cell)


class TestReplica:
    def measures(self):
        return Measures("us-east", source="ranker-1", routes=("baseline",), epoch_ms=1_000)

    def work(self, measures, cell):
        task = base_task("r", num_candidates=10, cell=cell)
        measures.note_taken(task)
        progress = Progress(task)
        progress.put(0, np.zeros(10, dtype="f4"))
        measures.note_answered(progress, now_ns=0, model_version="v1", pressure=0.0)

    def close(self, measures, now_ms):
        return measures.close(now_ms, pressures={}, num_waiting=0, cpu_share=0.0)

    def test_work_of_too_many_cells_counts_for_the_own_one(self):
        measures = self.measures()
        for number in range(MAX_OTHER_CELLS + 10):
            self.work(measures, f"invented-{number}")
        intervals = self.close(measures, 2_000)
        assert len(intervals) == MAX_OTHER_CELLS + 1
        assert sum(route.units_done for interval in intervals for route in interval.routes) == 10 * (
            MAX_OTHER_CELLS + 10
        )

    def test_a_cell_that_returns_after_it_was_forgotten_has_a_later_epoch(self):
        measures = self.measures()
        self.work(measures, "other")
        now_ms = 2_000
        (_, first) = self.close(measures, now_ms)
        for _ in range(FORGET_AFTER_INTERVALS + 2):
            now_ms += 1_000
            assert [interval.cell for interval in self.close(measures, now_ms)] == ["us-east"]
        self.work(measures, "other")
        own, again = self.close(measures, now_ms + 1_000)
        assert (first.epoch_ms, first.seq) < (again.epoch_ms, again.seq)
        assert again.seq == 0
        assert own.seq == FORGET_AFTER_INTERVALS + 3


def test_declarations_are_followed_and_what_cannot_be_believed_changes_nothing():
    view: Any = CellsView.__new__(CellsView)
    view.table, view._decoder = CellTable(lambda: True), Decoder(CONTROL_CELLS.record_types)

    def read(key, value):
        view._on_message(SimpleNamespace(key=lambda: key, value=lambda: value, offset=lambda: 0))

    read(b"us-east", encode(declaration("us-east")))
    read(b"eu-west", encode(declaration("us-west")))
    read(b"us-east", b"no declaration")
    assert view.table.is_declared("us-east", 0.0)
    assert not view.table.is_declared("us-west", 0.0)
    read(b"us-west", encode(declaration("us-west")))
    read(b"us-east", b"")
    assert not view.table.is_declared("us-east", 0.0)
