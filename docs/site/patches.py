"""Writes the table of what is replaced in fairseq into docs/fairseq.md.

python docs/site/patches.py
"""

import re
from pathlib import Path

from fairseq_memattn.host.patches import table

PAGE = Path(__file__).parents[1] / "fairseq.md"
BLOCK = re.compile("(?<=<!-- patches -->\n).*(?=<!-- end of patches -->)", re.DOTALL)


def block() -> str:
    rows = [
        f"| {name if ' ' in name else f'`{name}`'} | {reason}{', optional' * optional} | {what} |"
        for name, reason, optional, what in table()
    ]
    return "\n".join(["| replaced | reason | what for |", "|---|---|---|", *rows, ""])


if __name__ == "__main__":
    PAGE.write_text(BLOCK.sub(lambda _: block(), PAGE.read_text("utf-8")), "utf-8")
