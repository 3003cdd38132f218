"""Runs the stages that are not done, and records them in `stages.json` of their folders."""

import glob
import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .experiment import RecipeError, Stage

RECORDS = "stages.json"


def read_records(folder: Path) -> dict[str, Any]:
    path = folder / RECORDS
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def write_records(folder: Path, records: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f"{RECORDS}.part"
    part.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")
    part.replace(folder / RECORDS)


def is_done(stage: Stage) -> bool:
    """Raises RecipeError where the folder has the stage with other settings."""
    record = read_records(stage.folder).get(stage.name)
    made = all(map(glob.glob, stage.makes)) and (stage.trains or stage.output.exists())
    if record is None:
        if made and stage.trains:  # fairseq would go on with it
            raise RecipeError(
                f"{stage.folder} has another training; give another --work, or remove it"
            )
        return False
    if record["command"] != stage.record and made:
        before, now = (flags(words) for words in (record["command"], stage.record))
        raise RecipeError(
            f"{stage.folder} has {stage.name} with {difference(before, now)}, not with "
            f"{difference(now, before)}; keep to it, give another --work, or remove the folder"
        )
    return bool(record["done"] and made)


def flags(words: Sequence[str]) -> list[str]:
    """Each with its values."""
    found: list[str] = []
    for word in words:
        if word.startswith("--") or not found:
            found.append(word)
        else:
            found[-1] += f" {word}"
    return found


def difference(some: Sequence[str], others: Sequence[str]) -> str:
    return " ".join(flag for flag in some if flag not in others) or "fewer flags"


def run(stages: Sequence[Stage], programs: Path, title: str) -> None:
    """Those that are not done. Raises RecipeError for a command that fails."""
    for index, stage in enumerate(stages):
        if is_done(stage):
            continue
        for later in stages[index + 1 :]:  # are made of this one
            records = read_records(later.folder)
            if records.pop(later.name, None):
                write_records(later.folder, records)
        print(f"\n== {title}: {stage.name}", flush=True)
        record(stage, done=False)
        code = execute(stage, programs)
        if code:
            raise RecipeError(f"{title}: {stage.name} ended with {code}: {shown(stage)}")
        record(stage, done=True)


def record(stage: Stage, done: bool) -> None:
    records = read_records(stage.folder)
    write_records(stage.folder, {**records, stage.name: {"command": stage.record, "done": done}})


def execute(stage: Stage, programs: Path) -> int:
    """The exit status. What it prints is shown and kept; a training has a log of its own."""
    program, *given = stage.command
    words = [str(programs / program)]
    for word in given:
        words += sorted(glob.glob(word)) if "*" in word and glob.glob(word) else [word]
    if stage.trains:
        return subprocess.run(words).returncode
    if program == "fairseq-preprocess":  # refuses a dictionary that an interrupted run has left
        for folder in stage.makes:
            shutil.rmtree(folder, ignore_errors=True)
    part = stage.folder / f"{stage.name}.part"
    with (
        part.open("w", encoding="utf-8") as file,
        subprocess.Popen(words, stdout=subprocess.PIPE, text=True, encoding="utf-8") as process,
    ):
        for line in process.stdout or []:
            file.write(line)
            if not program.startswith("fairseq"):
                sys.stdout.write(line)
                sys.stdout.flush()
    if process.returncode == 0:
        part.replace(stage.output)
    return process.returncode


def shown(stage: Stage) -> str:
    """For a shell."""
    words = (word if "*" in word else shlex.quote(word) for word in stage.command)
    return " ".join(words) + ("" if stage.trains else f" > {shlex.quote(str(stage.output))}")
