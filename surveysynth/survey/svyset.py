"""The survey settings in a Stata file: what ``svyset`` kept in its characteristics.

Stata writes ``svyset psu [pweight=w], strata(s) fpc(f)`` as characteristics of the dataset
(``_dta[_svy_su1]`` and others), which other readers skip. The format is that of ``help dta``, 117
to 119. Names of columns are read, and no records.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

#: Bytes of a name, by version of the format, and of a release that has this section.
_NAME_BYTES = {b"117": 33, b"118": 129, b"119": 129}
_START, _END, _ENTRY, _ENTRY_END = (
    b"<characteristics>", b"</characteristics>", b"<ch>", b"</ch>"
)  # fmt: skip
_DATASET = "_dta"
#: Stata's word for records as units.
_RECORDS = "_n"


@dataclass(frozen=True)
class SvySettings:
    """The columns of ``svyset``, "" for none: of the first stage, the one that variances use.

    ``stages``: how many there are.
    """

    weight: str = ""
    strata: str = ""
    psu: str = ""
    fpc: str = ""
    stages: int = 1

    @property
    def words(self) -> str:
        """The settings in one line."""
        named = {"weight": self.weight, "strata": self.strata, "psu": self.psu, "fpc": self.fpc}
        return ", ".join(f"{role} {column}" for role, column in named.items() if column)


def svy_settings(content: bytes) -> SvySettings | None:
    """Return the settings in a Stata file; None where there are none, or in an older format."""
    found = dict(_characteristics(content))
    weighted = found.get("_svy_wtype", "pweight") in ("pweight", "")
    psu = found.get("_svy_su1", "")
    made = SvySettings(
        weight=found.get("_svy_wvar", "") if weighted else "",
        strata=found.get("_svy_strata1", ""),
        psu="" if psu == _RECORDS else psu,
        fpc=found.get("_svy_fpc1", ""),
        stages=int(found["_svy_stages"]) if found.get("_svy_stages", "").isdigit() else 1,
    )
    return made if made.words else None


def _characteristics(content: bytes) -> Iterator[tuple[str, str]]:
    """Yield the names and texts of the characteristics of the dataset itself."""
    start = content.find(b"<release>")
    size = _NAME_BYTES.get(content[start + 9 : start + 12]) if 0 <= start < 100 else None
    place, end = content.find(_START), content.find(_END)
    if size is None or not 0 <= place < end:
        return
    order = "<" if b"<byteorder>LSF" in content[:200] else ">"
    place += len(_START)
    while content[place : place + len(_ENTRY)] == _ENTRY:
        place += len(_ENTRY)
        if place + 4 > end:
            return
        (length,) = struct.unpack(f"{order}I", content[place : place + 4])
        entry = content[place + 4 : place + 4 + length]
        place += 4 + length + len(_ENTRY_END)
        if length < 2 * size or place > end:
            return
        owner, name, text = entry[:size], entry[size : 2 * size], entry[2 * size :]
        if _text(owner) == _DATASET:
            yield _text(name), _text(text)


def _text(raw: bytes) -> str:
    return raw.partition(b"\0")[0].decode("utf-8", errors="replace").strip()
