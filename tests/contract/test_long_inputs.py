"""Long inputs through fairseq-interactive, whose resident memory must not grow with them."""

import os
import random
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

import pytest
from contract_cases import Case
from contract_models import WORDS
from forked import Forked, fork
from harness import PLUGGED, environment, script
from test_generation import DOCUMENTS, shown

pytestmark = pytest.mark.contract

ONE_LAYER = "--encoder-layers 1 --decoder-layers 1"
WHOLE = f"{ONE_LAYER} --abc-encoder-slots 6 --abc-causal-slots 6 --abc-cross-slots 6"
LONG = "--max-source-positions 20100"
MIB = 2**20
GROWTH = 8 * MIB

IN_DOCUMENTS = [
    Case("abc_mlp_transformer", "documents", WHOLE),
    Case("gmat_transformer", "documents", f"{ONE_LAYER} --gmat-chunk 4 --gmat-memory 3"),
    Case("t5mem_v3", "documents", ONE_LAYER),
]
# Models whose cost is linear in the length of the source.
LINEAR = [
    Case(f"{name}_transformer", "translation", f"{WHOLE} {LONG} {more}")
    for name, more in (
        ("abc_mlp", ""),
        ("abc_linformer", ""),
        ("abc_clustering", ""),
        ("abc_compressive", ""),
        ("abc_global", "--abc-stride 4000"),
        ("abc_local_global", "--abc-stride 8000 --abc-local-window 3"),
        ("abc_random", ""),
        ("abc_gated", ""),
        ("abc_window", ""),
        ("abc_dilated", ""),
        ("abc_strided", ""),
        ("abc_workspace", "--abc-causal-slots 0 --encoder-layers 2 --decoder-layers 2"),
        ("elu", ""),
        ("rfa", ""),
        ("t2r", ""),
    )
] + [
    Case("gmat_transformer", "translation", f"{ONE_LAYER} {LONG} --gmat-chunk 64 {more}", name)
    for name, more in (
        ("chunks", ""),
        ("window", "--gmat-sparsity window --gmat-window 16"),
        ("lsh", "--gmat-sparsity lsh --gmat-lsh-rounds 2"),
    )
]


class Sample(NamedTuple):
    printed: int  # bytes
    resident: int  # bytes


def is_running(process: int) -> bool:
    state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    return state != "Z"


def watch(process: Forked) -> list[Sample]:
    """The resident memory until the process ends."""
    samples, page = [], os.sysconf("SC_PAGE_SIZE")
    while is_running(process.process):
        statm = Path(f"/proc/{process.process}/statm").read_text().split()
        printed = (process.folder / "stdout").stat().st_size
        samples.append(Sample(printed, int(statm[1]) * page))
        time.sleep(0.02)
    return [sample for sample in samples if sample.resident]


def translated(model, lines, folder, *flags):
    """The hypotheses of the lines, and the memory meanwhile, in a process of its own."""
    folder.mkdir()
    given = [model.data, *PLUGGED, "--path", model.checkpoint, "--beam", 1, *flags]
    argv = [script("fairseq-interactive"), *map(str, given)]
    process = fork(argv, folder, None, "".join(f"{line}\n" for line in lines), environment())
    samples = watch(process)
    done = process.wait()
    assert done.returncode == 0, done.stderr
    found = shown(done.stdout)
    assert list(found) == list(range(len(lines)))
    return found, samples


def assert_memory_does_not_grow(samples):
    """From the second quarter of what is printed to the last, in the median: peaks are short."""
    end = samples[-1].printed
    second = median(s.resident for s in samples if end / 4 <= s.printed <= end / 2)
    last = median(s.resident for s in samples if s.printed >= 0.75 * end)
    assert last - second < GROWTH, f"{second / MIB:.1f} MiB, then {last / MIB:.1f} MiB"


def random_lines(count, seed, words=3):
    draw = random.Random(seed)
    return [" ".join(f"w{draw.randrange(WORDS)}" for _ in range(words)) for _ in range(count)]


each_in_documents = pytest.mark.parametrize("case", IN_DOCUMENTS, ids=lambda case: case.name)


@each_in_documents
def test_a_document_of_5000_sentences(case, models, tmp_path):
    flags = [*DOCUMENTS, "--max-len-b", 3, "--buffer-size", 50]
    lines = random_lines(5000, 1)
    found, samples = translated(models(case), lines, tmp_path / "1", *flags)
    assert_memory_does_not_grow(samples)
    # Two sentences of context are all that a sentence depends on, but for what they were given.
    again, _ = translated(models(case), lines[:300], tmp_path / "2", *flags, "--max-tokens", 50)
    assert again == {number: found[number] for number in again}


@each_in_documents
def test_2000_documents(case, models, tmp_path):
    lines = []
    for number, line in enumerate(random_lines(6000, 2)):
        lines += [line] if number % 3 else ["", line]
    lines = lines[1:]
    flags = [*DOCUMENTS, "--max-len-b", 3, "--buffer-size", 200]
    found, samples = translated(models(case), lines, tmp_path / "1", *flags)
    assert len([line for line in lines if not line]) == 2000 - 1
    assert_memory_does_not_grow(samples)
    last = lines[-40:]
    alone, _ = translated(models(case), last, tmp_path / "2", *flags)
    assert list(alone.values()) == list(found.values())[-40:]


@pytest.mark.parametrize("case", LINEAR, ids=lambda case: case.name)
def test_sentences_of_20000_tokens(case, models, tmp_path):
    """The same one again and again, with short ones between them."""
    (long,) = random_lines(1, 3, words=20_000)
    lines = [long, "w1 w2", *[long] * 3, "w1 w2"]
    flags = ["--max-len-b", 3, "--buffer-size", 1, *LONG.split()]
    found, samples = translated(models(case), lines, tmp_path / "1", *flags)
    assert found[1] == found[5]
    assert [found[number] for number in range(2, 5)] == [found[0]] * 3
    assert_memory_does_not_grow(samples)
