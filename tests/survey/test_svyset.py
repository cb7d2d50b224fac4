"""The settings of svyset in Stata files.

Truth: the layout of Stata's ``help dta``, by which characteristics are put into files that pandas
wrote; the names of the settings are those that Stata 11 to 18 write.
"""

import struct
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import surveysynth as ss
from surveysynth import cli
from surveysynth.errors import InputError
from surveysynth.spec.build import read_survey
from surveysynth.spec.spec import load_spec
from surveysynth.survey.svyset import SvySettings, svy_settings
from tests.surveys import good

#: As Stata writes ``svyset school [pweight = weight], strata(field) fpc(schools) || _n``.
SETTINGS = {
    "_svy_version": "2", "_svy_stages": "2", "_svy_su1": "school", "_svy_strata1": "field",
    "_svy_fpc1": "schools", "_svy_wtype": "pweight", "_svy_wvar": "weight", "_svy_wexp": "= weight",
    "_svy_su2": "_n", "_svy_vce": "linearized", "_svy_singleunit": "missing",
}  # fmt: skip


def with_characteristics(
    content: bytes, entries: list[tuple[str, str, str]], name_bytes: int
) -> bytes:
    """Put characteristics into a file, and correct its map of places."""
    made = b""
    for owner, name, text in entries:
        named = b"".join(each.encode().ljust(name_bytes, b"\0") for each in (owner, name))
        entry = named + text.encode() + b"\0"
        made += b"<ch>" + struct.pack("<I", len(entry)) + entry + b"</ch>"
    place = content.index(b"<characteristics>") + len(b"<characteristics>")
    after = content.index(b"<map>") + len(b"<map>")
    places = list(struct.unpack("<14Q", content[after : after + 112]))
    moved = [each + len(made) if each >= place else each for each in places]
    content = content[:after] + struct.pack("<14Q", *moved) + content[after + 112 :]
    return content[:place] + made + content[place:]


def stata_file(
    path: Path, found: dict[str, str], version: int = 118, frame: pd.DataFrame | None = None
) -> Path:
    frame = good().assign(schools=400).drop(columns="note") if frame is None else frame
    frame.to_stata(path, write_index=False, version=version)
    entries = [("_dta", "note0", "1"), ("salary", "note1", "= _svy_wvar")]
    entries += [("_dta", name, text) for name, text in found.items()]
    path.write_bytes(
        with_characteristics(path.read_bytes(), entries, {117: 33, 118: 129, 119: 129}[version])
    )
    assert len(pd.read_stata(path)) == len(frame)  # it is still a file of Stata
    return path


@pytest.mark.parametrize("version", [117, 118, 119])
def test_settings_are_those_of_the_file(tmp_path: Path, version: int) -> None:
    path = stata_file(tmp_path / "s.dta", SETTINGS, version)
    expected = SvySettings("weight", "field", "school", "schools", 2)
    assert svy_settings(path.read_bytes()) == expected
    assert expected.words == "weight weight, strata field, psu school, fpc schools"


def test_records_as_units_other_weights_and_no_settings(tmp_path: Path) -> None:
    path = tmp_path / "s.dta"
    alone = {"_svy_su1": "_n", "_svy_wtype": "iweight", "_svy_wvar": "weight",
             "_svy_strata1": "field"}  # fmt: skip
    assert svy_settings(stata_file(path, alone).read_bytes()) == SvySettings(strata="field")
    assert svy_settings(stata_file(path, {}).read_bytes()) is None
    good().drop(columns="note").to_stata(path, write_index=False, version=114)  # another layout
    assert svy_settings(path.read_bytes()) is None


@settings(max_examples=30, deadline=None)
@given(cut=st.integers(0, 4000), byte=st.integers(0, 255), content=st.binary(max_size=300))
def test_damaged_files_have_no_settings_and_no_other_error(
    cut: int, byte: int, content: bytes
) -> None:
    head = b"<stata_dta><header><release>118</release><byteorder>LSF</byteorder>"
    whole = head + b"<characteristics><ch>" + struct.pack("<I", 300) + content
    for each in (whole, whole[:cut], whole + b"</ch></characteristics>",
                 whole[:cut] + bytes([byte]) + whole[cut:] + b"</characteristics>"):  # fmt: skip
        found = svy_settings(each)
        assert found is None or isinstance(found, SvySettings)


def test_init_writes_the_design_of_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = stata_file(tmp_path / "s.dta", {**SETTINGS, "_svy_su1": "_n"})
    flags = ["--outcome", "salary:continuous", "--constant", "salary.range=0,900000", "--by",
             "gender", "--mechanism", "pseudo_posterior", "--epsilon", "8"]  # fmt: skip
    assert cli.main(["init", str(data), *flags]) == 0
    told = capsys.readouterr().out
    assert "From svyset in the file: weight weight, strata field, fpc schools." in told
    spec = load_spec(tmp_path / "spec.toml").survey
    assert (spec.weight, spec.strata, spec.psu, spec.fpc) == ("weight", "field", None, "schools")
    assert read_survey(load_spec(tmp_path / "spec.toml")).design.fpc is not None
    # What is said goes before what is in the file.
    made = ss.init(
        data, tmp_path / "two.toml", strata="gender", by="field", mechanism="pseudo_posterior",
        outcomes={"salary": {"kind": "continuous", "range": [0, 900_000]}}, epsilon=8,
    )  # fmt: skip
    assert load_spec(made.path).survey.strata == "gender"
    with pytest.raises(InputError, match="weight: missing; name the column"):
        ss.init(
            stata_file(tmp_path / "t.dta", {}), outcomes={"salary": None}, epsilon=8,
            mechanism="pseudo_posterior",
        )  # fmt: skip
