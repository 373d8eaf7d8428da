"""A damaged database is found before it is used, wherever the damage lies."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from streams.control.local_store import set_aside_damaged

NUM_CELLS = 5
NUM_PLACES = 60


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with its states in a table file, as a closed or long-lived one has them."""
    path = tmp_path_factory.mktemp("sound") / "controllers-0.db"
    database = Rdict(str(path), options=Options(raw_mode=True))
    dice = random.Random(3)
    for cell in range(NUM_CELLS):
        database[b"cell-%d" % cell] = dice.randbytes(900)
    database.flush()
    database.close()
    return path


def flip(data: bytearray, at: int) -> None:
    data[at] ^= 0x41


def blank(data: bytearray, at: int) -> None:
    data[at : at + 512] = bytes(len(data[at : at + 512]))


def cut(data: bytearray, at: int) -> None:
    del data[at:]


@pytest.mark.parametrize("damage", [flip, blank, cut])
def test_what_is_left_in_place_gives_every_state(
    sound: Path, tmp_path: Path, damage: Callable[[bytearray, int], None]
) -> None:
    size = next(sound.glob("*.sst")).stat().st_size
    num_aside = 0
    for place in range(NUM_PLACES):
        path = tmp_path / str(place) / "controllers-0.db"
        shutil.copytree(sound, path)
        file = next(path.glob("*.sst"))
        data = bytearray(file.read_bytes())
        damage(data, place * size // NUM_PLACES)
        file.write_bytes(data)
        if set_aside_damaged(path.parent, label="1"):
            num_aside += 1
            continue
        database = Rdict(str(path), options=Options(raw_mode=True))
        assert all(len(database[b"cell-%d" % cell] or b"") == 900 for cell in range(NUM_CELLS))
        database.close()
    assert num_aside > NUM_PLACES // 2


def test_a_sound_database_stays_where_it_is(sound: Path, tmp_path: Path) -> None:
    shutil.copytree(sound, tmp_path / sound.name)
    assert set_aside_damaged(tmp_path, label="1") == []
