"""The configuration: what stands in the docs is read, and every mistake is one line that names the setting."""

import re
from pathlib import Path

import pytest

from ops.agent.settings import AgentSettings, load_settings, settings_of

PAGE = Path(__file__).parents[3] / "docs" / "agent.md"
SMALL = 'cell = "us-east"\n[sources.host]\n'


def of(text: str, folder: Path = Path()) -> AgentSettings:
    return settings_of(text, folder=folder)


def test_what_is_left_out_has_its_default() -> None:
    settings = of(SMALL)
    assert settings.host
    assert (settings.lease_s, settings.hold_s, settings.state_dir) == (2.0, 300.0, None)
    device, cpu = settings.policy_of("h200-0", "h200"), settings.policy_of("cpu", "cpu")
    assert (device.idle_below, device.busy_above, device.idle_cause) == (0.05, 0.15, "off_peak")
    # Of cores the owner's service never leaves all alone.
    assert (cpu.idle_below, cpu.busy_above) == (0.5, 0.8)


def test_a_pool_overrides_its_kind_its_kind_the_policy_and_labels_the_policy(tmp_path: Path) -> None:
    (tmp_path / "labels").write_text(
        'app="x"\nintertidal.dev/idle-cause="not_ported"\nintertidal.dev/provider="cloud"\n'
    )
    settings = of(
        'labels_file = "labels"\n'
        + SMALL
        + '[policy]\nidle_for_s = 1\nidle_cause = "off_peak"\nprovider = "own"\n'
        + "needs = {cpu_cores = 2}\nmemory_gib = 2\n"
        + '[kinds.h200]\nidle_for_s = 2\n[pools.h200-1]\nidle_for_s = 3\nidle_cause = "ahead_of_models"\n',
        tmp_path,
    )
    assert [
        settings.policy_of(pool, kind).idle_for_s for pool, kind in (("x", "y"), ("x", "h200"), ("h200-1", "h200"))
    ] == [
        1.0,
        2.0,
        3.0,
    ]
    assert settings.policy_of("x", "y").idle_cause == "not_ported"
    assert settings.policy_of("h200-1", "h200").idle_cause == "ahead_of_models"
    one = settings.policy_of("x", "y")
    assert (one.provider, one.needs.cpu_cores, one.memory_bytes) == ("cloud", 2.0, 2 << 30)


@pytest.mark.parametrize(
    ("policy", "limits"),
    [
        ("busy_above = 0.3", (0.05, 0.3)),
        ("idle_below = 0.1", (0.1, 0.15)),
        ("idle_for_s = 5", (0.5, 0.8)),
        ("[pools.cpu]\nidle_below = 0.6", (0.6, 0.8)),
    ],
)
def test_limits_of_the_policy_are_not_mixed_with_those_that_cores_have_without_one(
    policy: str, limits: tuple[float, float]
) -> None:
    cpu = of(f"{SMALL}[policy]\n{policy}\n").policy_of("cpu", "cpu")
    assert (cpu.idle_below, cpu.busy_above) == limits


def test_cores_that_are_not_to_be_offered_are_all_in_reserve() -> None:
    assert of(SMALL).policy_of("cpu", "cpu").reserve_units == 0.0
    assert of(SMALL + "offer = false\n").policy_of("cpu", "cpu").reserve_units > 10**9
    assert of(SMALL + "offer = false\n").policy_of("h200-0", "h200").reserve_units == 0.0


def test_paths_are_from_the_files_folder(tmp_path: Path) -> None:
    settings = of(
        'runtime_dir = "run"\nstate_dir = "/abs"\n' + SMALL + '[[leases]]\npath = "lease"\nttl = "1m"\n', tmp_path
    )
    assert settings.runtime_dir == tmp_path / "run"
    assert settings.state_dir == Path("/abs")
    assert (settings.leases[0].path, settings.leases[0].ttl_s) == (tmp_path / "lease", 60.0)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "cell"),
        ('cell = "us-east"\n', "sources"),
        ('cell = "us-east"\n[sources]\n', "sources: at least one of host, nvml"),
        ('cell = "US East"\n[sources.host]\n', "cell: "),
        (SMALL + "[policy]\nidle_fro_s = 1\n", "policy: .*idle_fro_s"),
        (SMALL + "[policy]\nidle_for_s = -1\n", "policy.idle_for_s: "),
        (SMALL + '[policy]\nidle_for_s = "long"\n', "policy.idle_for_s: "),
        (SMALL + "[policy]\nidle_below = 0.5\n", r"policy: idle_below \(0.5\) must be below busy_above"),
        (SMALL + "[pools.cpu]\nbusy_above = 0.4\n", r"pools\.cpu: idle_below"),
        (SMALL + "[kinds.h200]\npressure_below = 0.9\n", r"kinds\.h200: pressure_below"),
        (SMALL + "[kinds.cpu]\nbusy_above = 0.4\n", r"kinds\.cpu: idle_below"),
        (
            SMALL + "[kinds.h200]\nidle_below = 0.4\nbusy_above = 0.6\n[pools.h200-0]\nbusy_above = 0.3\n",
            r"pools\.h200-0",
        ),
        (
            SMALL + "[policy]\nidle_below = 0.1\nbusy_above = 0.3\n[kinds.cpu]\nidle_below = 0.5\n",
            r"kinds\.cpu: idle_b",
        ),
        (SMALL + "every_s = 6.0\n", r"policy.*: stale_after_s \(10\) must be twice"),
        (SMALL + "[pools.cpu]\nstale_after_s = 1.5\n", r"pools\.cpu: stale_after_s"),
        (SMALL + '[sources.nvml.kinds]\n"NVIDIA X" = "a/b"\n', r"sources\.nvml\.kinds"),
        (SMALL + '[[notices]]\npath = "x"\npools = ["x\\n"]\n', r"notices.*pools"),
        (SMALL + '[reclaim]\nhold = "soon"\n', "reclaim.hold: 'soon' is no duration"),
        (SMALL + '[[schedule]]\nname = "x"\nfor = "1h"\n', r"schedule\[0\]: one of at and daily"),
        (SMALL + '[[schedule]]\nname = "x"\nfor = "1h"\ndaily = "25:00"\n', r"schedule\[0\]\.daily"),
        (SMALL + '[[schedule]]\nname = "x"\nfor = "1h"\ndaily = "07:00"\ndays = ["son"]\n', r"schedule\[0\]\.days"),
        (
            SMALL + '[[schedule]]\nname = "x"\nfor = "1h"\ndaily = "07:00"\nzone = "Mars"\n',
            r"schedule\[0\]\.zone: .*Mars",
        ),
        (SMALL + '[[schedule]]\nname = "x"\nfor = "1h"\nat = 2026-03-01T00:00:00\n', r"schedule\[0\]\.at: has no zone"),
        (SMALL + '[[leases]]\npath = "x"\nttl = "1 h"\n', r"leases\[0\]\.ttl"),
        ('labels_file = "none"\n' + SMALL, "labels_file: .*No such file"),
        ("cell = [", "no TOML"),
        ("lease_s = 0.01\n" + SMALL, "lease_s: "),
    ],
)
def test_every_mistake_is_named_in_one_line(text: str, line: str, tmp_path: Path) -> None:
    path = tmp_path / "agent.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=line) as refused:
        load_settings(path)
    assert str(refused.value).startswith(f"{path}: ")
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"none\.toml: No such file"):
        load_settings(tmp_path / "none.toml")


def test_every_configuration_in_the_docs_is_read(tmp_path: Path) -> None:
    (tmp_path / "labels").write_text("")
    blocks = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 2
    for block in blocks:
        # Where the page names files of the host, the ones of this test stand in.
        settings = of(re.sub(r'labels_file = ".*?"', 'labels_file = "labels"', block), tmp_path)
        assert settings.cell
