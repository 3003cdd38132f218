"""Prints the results of `make demo`: the scores, and the accuracies with and without context."""

import re
import sys
from pathlib import Path

work = Path(sys.argv[1])
print((work / "model" / "score.txt").read_text(encoding="utf-8"))
texts = [(work / "model" / f"contrast-{n}.txt").read_text(encoding="utf-8") for n in (1, 0)]
for row in ("cohesion", "deixis", "ellipsis", "pronoun", "total"):
    pattern = rf"^{row} .* ([0-9.]+) % +[0-9.]+ %$"  # accuracy, and chance
    with_context, without = (float(re.findall(pattern, text, re.M)[0]) for text in texts)
    print(f"{row:9} with the sentence before {with_context:5.1f} %, without {without:5.1f} %")
print(f"Picture: {work}/memory.png")
