"""Tables of words and templates: tab-separated UTF-8 files, the names of the columns first."""

import csv
from importlib.resources import files

Row = dict[str, str]


def read_table(package: str, name: str) -> list[Row]:
    """The rows of a table in a package, each a dict from column to cell.

    Empty cells at the end of a row may be left out.
    """
    with files(package).joinpath(name).open(encoding="utf-8") as file:
        rows = csv.DictReader(file, dialect="excel-tab", quoting=csv.QUOTE_NONE, restval="")
        return list(rows)


def grouped(rows: list[Row], column: str) -> dict[str, list[Row]]:
    """The rows by their cell in one column; groups and rows keep their order."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[column], []).append(row)
    return groups
