"""Every measurement still runs, in its tiniest size and without a broker; what comes out is what is documented."""

import json
from pathlib import Path

import pytest

from benchmarks.__main__ import PARTS, main, with_results
from benchmarks.measurement import Measurement, markdown
from benchmarks.plan import Plan, alternate

DOCUMENTED = Path(__file__).parents[3] / "docs" / "benchmarks.md"
ON_KAFKA_ALONE = {"pipeline", "mixed", "isolation", "overhead", "beside_replay"}


def test_the_command_measures_every_part_and_writes_what_it_prints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "report.json"
    main(["--tiny", "--json", str(file)])
    report = json.loads(file.read_text())
    assert report["plan"] == "tiny"
    assert {"cores", "processor", "load average before, after", "Python", "torch"} <= report["machine"].keys()
    assert {found["part"] for found in report["measurements"]} == PARTS.keys() - ON_KAFKA_ALONE
    printed = capsys.readouterr().out
    for found in report["measurements"]:
        assert found["values"], found
        assert min(found["values"]) > 0.0
        assert found["name"] in printed
        assert len(found["ratios"]) == len(found["reference_values"])


def test_every_key_of_the_report_is_documented(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    main(["--tiny", "--only", "planning", "--json", str(file)])
    report = json.loads(file.read_text())
    documented = DOCUMENTED.read_text()
    for key in (*report, *report["measurements"][0]):
        assert f"`{key}`" in documented, key


def test_a_part_that_is_not_known_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--only", "nothing"])
    assert ended.value.code == 2
    assert "nothing" in capsys.readouterr().err


def test_sides_are_measured_by_turns_and_each_first_as_often() -> None:
    order: list[str] = []

    def side(name: str) -> float:
        order.append(name)
        return float(len(order))

    values, other_values = alternate(lambda: side("A"), lambda: side("B"), num_turns=4, name="")
    assert "".join(order) == "ABBAABBA"
    assert (values, other_values) == ([1.0, 4.0, 5.0, 8.0], [2.0, 3.0, 6.0, 7.0])


def test_a_ratio_is_the_median_of_the_turns_ratios_with_its_spread() -> None:
    found = Measurement(
        name="it", unit="per s", values=[10.0, 40.0, 9.0], reference="that", reference_values=[5.0, 10.0, 9.0], goal="2"
    )
    assert (found.median, found.reference_median, found.ratio, found.ratios) == (10.0, 9.0, 2.0, [1.0, 2.0, 4.0])
    row = markdown({"cores": "2"}, [found]).splitlines()[-1]
    assert row == "| it | per s | 10 (9 to 40) | that | 9 | 2.00 (1.00 to 4.00) | 2 |"


def test_a_measurement_without_a_reference_has_no_ratio() -> None:
    found = Measurement(name="it", unit="ms", values=[1_234.5])
    assert (found.ratio, found.ratios) == (None, [])
    assert markdown({}, [found]).splitlines()[-1] == "| it | ms | 1,234 | – | – | – | – |"


@pytest.mark.parametrize(("values", "reference_values"), [([], []), ([1.0, 2.0], [1.0])])
def test_values_and_their_references_belong_together(values: list[float], reference_values: list[float]) -> None:
    with pytest.raises(ValueError, match="values"):
        Measurement(name="it", unit="ms", values=values, reference_values=reference_values)


def test_a_plan_has_one_size_for_each_length() -> None:
    assert [plan.choose(3, 2, 1) for plan in (Plan(), Plan(quick=True), Plan(tiny=True))] == [3, 2, 1]


def test_the_page_keeps_everything_but_its_results() -> None:
    page = "# Title\n<!-- results -->\nold\n<!-- end of results -->\nwords\n"
    once = with_results(page, "| new |")
    assert once == "# Title\n<!-- results -->\n\n| new |\n\n<!-- end of results -->\nwords\n"
    assert with_results(once, "| new |") == once
    with pytest.raises(ValueError, match="no <!-- results -->"):
        with_results("# Title\n", "| new |")
