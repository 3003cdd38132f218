"""How fast trained models translate a test set, each beside the first.

    python recipes/long_documents/speed.py BIN --runs transformer=A.pt gmat=B.pt --output speed.md

Runs fairseq-generate for each model in turn, --repeats times, with the settings of the experiment,
on one of --shards parts of the test set. Writes a table of the medians: seconds, tokens a second,
and the tokens a second over those of the first. Nothing else should run on the machine.
"""

import argparse
import re
import shlex
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from fairseq_memattn.cli.shared.outputs import check_outputs
from fairseq_memattn.files import write_text

PLUGIN = Path(__file__).with_name("numbered_sentences")
GENERATE = (
    "--gen-subset test --beam 1 --lenpen 0.6 --max-tokens 4096 --max-len-a 1.2 --max-len-b 20 "
    "--max-source-positions 8192 --max-target-positions 8192 --required-batch-size-multiple 1"
)
REPORT = re.compile(r"Translated [\d,]+ sentences \(([\d,]+) tokens\) in ([\d.]+)s")
Timing = tuple[int, float]  # tokens, seconds


def timing(output: str) -> Timing:
    """What fairseq-generate says. Raises ValueError where it does not."""
    found = REPORT.search(output)
    if found is None:
        raise ValueError("fairseq-generate does not say how long it took")
    return int(found[1].replace(",", "")), float(found[2])


def translate(data: Path, checkpoint: Path, flags: Sequence[str]) -> Timing:
    program = Path(sys.executable).with_name("fairseq-generate")
    command = [program, data, "--path", checkpoint, "--user-dir", PLUGIN, *GENERATE.split(), *flags]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        raise ValueError(f"{checkpoint}: fairseq-generate ended with {done.returncode}: {last}")
    return timing(done.stdout + done.stderr)


def table(timings: Mapping[str, Sequence[Timing]]) -> str:
    """Markdown: a row for each model."""
    speeds = {
        name: statistics.median(tokens / seconds for tokens, seconds in found)
        for name, found in timings.items()
    }
    first = next(iter(speeds.values()))
    lines = ["| system | tokens | seconds | tokens a second | ratio |", "| --- " * 5 + "|"]
    for name, found in timings.items():
        seconds = statistics.median(seconds for _, seconds in found)
        cells = [f"`{name}`", f"{found[0][0]:,}", f"{seconds:.1f}"]
        cells += [f"{speeds[name]:.0f}", f"{speeds[name] / first:.2f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "".join(f"{line}\n" for line in lines)


def read_runs(given: Sequence[str]) -> dict[str, Path]:
    """Raises ValueError for anything but NAME=FILE of a file that exists."""
    runs = {}
    for pair in given:
        name, equals, path = pair.partition("=")
        if not (name and equals) or not Path(path).is_file():
            raise ValueError(f"--runs {pair}: must be NAME=FILE with the file of a checkpoint")
        runs[name] = Path(path)
    return runs


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="fairseq's data, with a test set")
    parser.add_argument("--runs", nargs="+", required=True, metavar="NAME=FILE")
    parser.add_argument("--repeats", type=int, default=3, help="default: 3")
    parser.add_argument("--shards", type=int, default=4, help="default: 4")
    parser.add_argument("--flags", default="--cpu", help="of fairseq-generate (default: --cpu)")
    parser.add_argument("--output", type=Path, required=True, help="the table, in Markdown")
    args = parser.parse_args(argv)
    try:
        for option in ("repeats", "shards"):
            if getattr(args, option) < 1:
                raise ValueError(f"--{option} must be 1 or more, but is {getattr(args, option)}")
        flags = [*shlex.split(args.flags), "--num-shards", str(args.shards), "--shard-id", "0"]
        runs = read_runs(args.runs)
        check_outputs({"--output": args.output}, runs.values())
        timings: dict[str, list[Timing]] = {name: [] for name in runs}
        for repeat in range(1, args.repeats + 1):
            for name, path in runs.items():
                timings[name].append(translate(args.data, path, flags))
                tokens, seconds = timings[name][-1]
                print(f"{repeat}: {name}, {tokens:,} tokens in {seconds:.1f} s", file=sys.stderr)
        write_text(args.output, table(timings))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(table(timings), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
