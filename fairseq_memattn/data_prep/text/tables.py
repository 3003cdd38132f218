"""Tables of words and templates: tab-separated UTF-8 files, the names of the columns first."""

from importlib.resources import files

Row = dict[str, str]


def read_table(package: str, name: str) -> list[Row]:
    """The rows of a table in a package, each a dict from column to cell.

    Empty cells at the end of a row may be left out. Raises ValueError for a row with more cells
    than the table has columns.
    """
    text = files(package).joinpath(name).read_text(encoding="utf-8")
    header, *lines = text.removesuffix("\n").split("\n")
    columns = header.split("\t")
    rows = []
    for number, line in enumerate(lines, start=2):
        cells = line.split("\t")
        missing = len(columns) - len(cells)
        if missing < 0:
            raise ValueError(f"{name}, line {number}: {len(cells)} cells in {len(columns)} columns")
        rows.append(dict(zip(columns, cells + [""] * missing, strict=True)))
    return rows


def grouped(rows: list[Row], column: str) -> dict[str, list[Row]]:
    """The rows by their cell in one column; groups and rows keep their order."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[column], []).append(row)
    return groups
