"""Files of quantiles: numbers however they are divided, and each kind of odd value counted with its line."""

from pathlib import Path

import pytest

from ops.simulator.files.errors import TrafficFileError
from ops.simulator.files.pairs_file import PairsFile, read_pairs


def read(folder: Path, text: str) -> PairsFile:
    path = folder / "pairs.txt"
    path.write_text(text)
    return read_pairs(path, limit=1_000)


@pytest.mark.parametrize("text", ["100, 200, 700", "100\n200\n\n700\n", "100 200;700\r\n", "100\t200,,700"])
def test_numbers_are_divided_by_commas_semicolons_blanks_or_lines(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text).quantiles == (100.0, 200.0, 700.0)


def test_odd_values_are_counted_and_named(tmp_path: Path) -> None:
    pairs = read(tmp_path, "pairs\n300\n200\n0\n-5\n1e4\nnan\n0x10\n")
    assert pairs.quantiles == (200.0, 300.0, 1_000.0)
    assert pairs.num_values == 8
    assert {kind: count.first_lines for kind, count in pairs.dirt.kinds.items()} == {
        "not_a_number": [1, 7, 8],
        "unordered": [3],
        "below_one": [4, 5],
        "above_limit": [6],
    }


def test_a_file_without_a_usable_number_is_named(tmp_path: Path) -> None:
    with pytest.raises(TrafficFileError, match="quantiles: no usable number among 2"):
        read(tmp_path, "few many")
