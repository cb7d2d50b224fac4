r"""Tables as LaTeX: booktabs and threeparttable, one file per table and a document that holds all.

Each file can be read into a document of one's own with \input; its first lines name the packages.
A table longer than a page becomes a longtable with the same parts.
"""

import re
from itertools import groupby
from pathlib import Path

from surveysynth._support.messages import xml_text
from surveysynth.config.tables_section import Format
from surveysynth.release.tables.layout import Column, Layout, Row, TableSet

_ROWS_ON_A_PAGE = 40

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "`": r"\textasciigrave{}",
    # At the start of a row these would be read as an argument of the line end before them.
    "[": "{[}",
    "]": "{]}",
    "*": "{*}",
    # The signs that the numbers use; pdfTeX does not know the first.
    "−": r"\textminus{}",
    "–": r"\textendash{}",
    "†": r"\textdagger{}",
    "±": r"\textpm{}",
    "·": r"\textperiodcentered{}",
}
#: Pairs that fonts draw as another sign: -- as a dash, '' as a quotation mark, ?` as one upside
#: down (the grave accent is escaped above).
_LIGATURE = re.compile(r"([-',])(?=\1)")

#: LaTeX counts tables itself.
_NUMBER = re.compile(r"^Table \d+\. ")

_PREAMBLE = r"""\documentclass[11pt]{article}
\usepackage{iftex}
\ifPDFTeX
  \usepackage[T1]{fontenc}
  \IfFileExists{lmodern.sty}{\usepackage{lmodern}}{}
\else
  \usepackage{fontspec}
\fi
\usepackage{textcomp}
\usepackage[margin=2.5cm]{geometry}
\usepackage{booktabs}
\usepackage{threeparttable}
\usepackage{longtable}
\usepackage{threeparttablex}
\begin{document}
"""


def escape(text: str) -> str:
    """Return text that LaTeX prints unchanged, on one line; commands in it have no effect."""
    joined = _LIGATURE.sub("\\1\0", xml_text(text))
    return "".join(_SPECIAL.get(char, char) for char in joined).replace("\0", "{}")


def write(shown: TableSet, folder: Path, made: Format) -> None:
    """Write one file per statistic, and a document that reads them all."""
    for statistic, layout in shown.layouts.items():
        path = folder / made.file_of(statistic)
        path.write_text(render_fragment(layout), encoding="utf-8")
    if made.one_file:
        # Labels beyond Latin need lualatex or xelatex.
        names = map(made.file_of, shown.layouts)
        body = "".join(f"\\input{{{name}}}\n\\clearpage\n" for name in names)
        document = f"{_PREAMBLE}{body}\\end{{document}}\n"
        (folder / made.one_file).write_text(document, encoding="utf-8")


def render_fragment(layout: Layout) -> str:
    """Return the table as text."""
    long = len(layout.rows) > _ROWS_ON_A_PAGE
    packages = "booktabs, threeparttable" + (", longtable, threeparttablex" if long else "")
    lines = [f"% Needs the packages {packages} and T1 fonts or LuaTeX."]
    if layout.banner:
        text = rf"\bfseries {escape(layout.banner)}"
        lines += [rf"\noindent\fbox{{\parbox{{0.97\linewidth}}{{{text}}}}}", ""]
    lines += _long_table(layout) if long else _one_page(layout)
    return "\n".join(lines) + "\n"


def _one_page(layout: Layout) -> list[str]:
    return [
        r"\begin{table}[htbp]",
        r"\centering\small",
        r"\begin{threeparttable}",
        rf"\caption{{{_caption(layout)}}}\label{{tab:{layout.stem}}}",
        rf"\begin{{tabular}}{{{_alignment(layout)}}}",
        r"\toprule",
        *_heading(layout),
        r"\midrule",
        *_body(layout),
        r"\bottomrule",
        r"\end{tabular}",
        r"\begin{tablenotes}[flushleft]\footnotesize",
        *_notes(layout),
        r"\end{tablenotes}",
        r"\end{threeparttable}",
        r"\end{table}",
    ]


def _long_table(layout: Layout) -> list[str]:
    heading = [r"\toprule", *_heading(layout), r"\midrule"]
    return [
        r"\begingroup\small",
        r"\begin{ThreePartTable}",
        r"\begin{TableNotes}[flushleft]\footnotesize",
        *_notes(layout),
        r"\end{TableNotes}",
        rf"\begin{{longtable}}{{{_alignment(layout)}}}",
        rf"\caption{{{_caption(layout)}}}\label{{tab:{layout.stem}}}\\",
        *heading,
        r"\endfirsthead",
        *heading,
        r"\endhead",
        r"\bottomrule",
        r"\endfoot",
        r"\bottomrule",
        r"\insertTableNotes",
        r"\endlastfoot",
        *_body(layout),
        r"\end{longtable}",
        r"\end{ThreePartTable}",
        r"\endgroup",
    ]


def _caption(layout: Layout) -> str:
    title = escape(_NUMBER.sub("", layout.title))
    return rf"{title}. {escape(layout.subtitle)}" if layout.subtitle else title


def _alignment(layout: Layout) -> str:
    return "@{}l" + "r" * len(layout.columns) + "@{}"


def _heading(layout: Layout) -> list[str]:
    """Return one line, or two with the spanners above the columns that share them."""
    lines = []
    if any(column.spanner for column in layout.columns):
        above, rules, place = [""], [], 2
        for spanner, under in groupby(layout.columns, key=lambda column: column.spanner):
            width = len(list(under))
            if spanner:
                above.append(rf"\multicolumn{{{width}}}{{c}}{{{escape(spanner)}}}")
                rules.append(rf"\cmidrule(lr){{{place}-{place + width - 1}}}")
            else:
                above += [""] * width
            place += width
        lines += [" & ".join(above) + r" \\", " ".join(rules)]
    headings = [layout.stub_heading, *(_short(column) for column in layout.columns)]
    return [*lines, " & ".join(escape(heading) for heading in headings) + r" \\"]


def _short(column: Column) -> str:
    """Shorten headings to fit the page; the caption says what is estimated."""
    short = {
        "estimate": "Estimate", "se": "Std. error", "n": "Sample size", "paired": "Estimate (SE)",
    }  # fmt: skip
    if column.key.startswith("paired-"):  # of a cross table, whose columns are levels
        return column.heading
    return short.get(column.key.partition("-")[0], column.heading)


def _body(layout: Layout) -> list[str]:
    lines, group = [], ""
    for row in layout.rows:
        if row.stub.group != group:
            group = row.stub.group
            over = rf"\multicolumn{{{len(layout.columns) + 1}}}{{@{{}}l}}"
            lines += [r"\addlinespace", rf"{over}{{\itshape {escape(group)}}} \\"]
        indent = rf"\hspace*{{{row.stub.indent}em}}" if row.stub.indent else ""
        cells = [indent + _bold(row.stub.label, row)]
        for cell in row.cells:
            # On the right without width of their own: digits stay below digits.
            marks = "".join(rf"\tnote{{{mark}}}" for mark in cell.marks)
            cells.append((_bold(cell.text, row) if cell.text else "") + marks)
        lines.append(" & ".join(cells) + r" \\")
    return lines


def _bold(text: str, row: Row) -> str:
    return rf"\textbf{{{escape(text)}}}" if row.stub.strong else escape(text)


def _notes(layout: Layout) -> list[str]:
    marked = [rf"\item[{mark}] {escape(text)}" for mark, text in layout.footnotes]
    return [*marked, *(rf"\item {escape(note)}" for note in layout.notes)]
