"""Whose result it is, read from the first bytes of the record."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import ranking.client.takeover as takeover
from ranking.client.takeover import request_id_of
from schemas.errors import RecordError
from schemas.framing import encode
from tests.unit.ranking.router_driver import Driver


def a_result():
    driver = Driver()
    (sent,) = driver.request()
    driver.answer(sent)
    return driver.results[0]


RESULT = a_result()


@given(request_id=st.text(st.characters(codec="utf-8"), min_size=1, max_size=256))
def test_it_is_the_request_of_the_record(request_id):
    assert request_id_of(encode(replace(RESULT, request_id=request_id))) == request_id


def test_the_rest_of_the_record_is_not_looked_at(monkeypatch):
    def too_dear(value):
        raise AssertionError("a whole record was decoded")

    monkeypatch.setattr(takeover, "_decode", too_dear)
    assert request_id_of(encode(RESULT)) == RESULT.request_id


@pytest.mark.parametrize("cut", [0, 5, 10, 11])
def test_what_cannot_be_read_is_refused(cut):
    with pytest.raises(RecordError):
        request_id_of(encode(RESULT)[:cut])
    with pytest.raises(RecordError):
        request_id_of(b"no result at all")
    with pytest.raises(RecordError):
        request_id_of(None)
