"""The commands of a page run, one after another, as they are written there."""

import re
import shlex

import pytest
from harness import PLUGIN, ROOT, attempt

# Sizes and updates with which the commands take seconds.
SMALLER = {
    "docs/language_models.md": {
        "--vocab-size": "120",
        "--max-update": "2",
        "--warmup-updates": "1",
        "--decoder-layers": "1",
        "--tokens-per-sample": "64",
        "--max-len-b": "3",
    },
    "README.md": {
        "--max-epoch": "1",
        "--warmup-updates": "1",
        "--encoder-layers": "1",
        "--decoder-layers": "1",
        "--encoder-embed-dim": "32",
        "--beam": "1",
    },
}
FLAGS = [(page, flag) for page, flags in SMALLER.items() for flag in flags]


def blocks(page: str, start: str = "") -> list[tuple[str, str]]:
    """Language and code of the blocks of a page that contain a text."""
    text = (ROOT / page).read_text("utf-8")
    found = re.findall(r"^```(python)?\n(.*?)^```", text, re.M | re.S)
    return [(language, code) for language, code in found if start in code]


def outputs_of(page, chosen, folder):
    """The output of all commands of blocks, none of which fails."""
    done = []
    for language, code in chosen:
        if language:
            (folder / "script.py").write_text(code, "utf-8")
            done.append(attempt(str(folder / "script.py"), cwd=folder, fresh=True))
        else:
            done += [ran(page, line, folder) for line in code.splitlines()]
    assert [one.stderr for one in done if one.returncode] == []
    return "".join(one.stdout for one in done)


def ran(page, line, folder):
    """A command, `echo TEXT | command`, or `command > FILE`."""
    words = shlex.split(line.replace("--user-dir fairseq_memattn", f"--user-dir {PLUGIN}"))
    for flag, value in SMALLER[page].items():
        if flag in words:
            words[words.index(flag) + 1] = value
    given = output = None
    if words[0] == "echo":
        given, words = f"{words[1]}\n", words[3:]
    if words[-2] == ">":
        words, output = words[:-2], folder / words[-1]
    if words[0].startswith("fairseq-"):
        words.append("--cpu")
    done = attempt(words[0], *words[1:], cwd=folder, stdin=given)
    if output:
        output.write_text(done.stdout, "utf-8")
    return done


@pytest.fixture
def folder(corpus, tmp_path, monkeypatch):
    """A folder with the beginning of a corpus in `my`."""
    (tmp_path / "my").mkdir()
    for split in ("train", "valid", "test"):
        for side, name in (("en", "en"), ("ru", "de"), ("docid", "docid")):
            lines = (corpus / f"{split}.{side}").read_text("utf-8").splitlines(True)[:300]
            (tmp_path / f"my/{split}.{name}").write_text("".join(lines), "utf-8")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    return tmp_path


def test_language_models(folder):
    for name in folder.glob("my/*.d*"):
        name.unlink()
    page = "docs/language_models.md"
    printed = outputs_of(page, blocks(page), folder)
    assert "stateful, positions restart" in printed and "64 to 127" in printed
    assert "\nH-0\t" in printed and "tensor([" in printed
    assert (folder / "lm/training.png").is_file()
    assert (folder / "lm/exported/config.json").is_file()


def test_a_corpus_of_ones_own(folder):
    (block,) = blocks("README.md", "prepare own-corpus")
    printed = outputs_of("README.md", [block], folder)
    assert "s-BLEU|" in printed and "d-BLEU|" in printed
    assert (folder / "checkpoints/checkpoint_best.pt").is_file()


@pytest.mark.parametrize(("page", "flag"), FLAGS)
def test_what_is_made_smaller_is_there(page, flag):
    assert f"{flag} " in (ROOT / page).read_text("utf-8")
