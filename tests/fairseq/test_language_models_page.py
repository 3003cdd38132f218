"""The commands of docs/language_models.md run, one after another, as they are written there."""

import re
import shlex

import pytest
from harness import PLUGIN, ROOT, attempt

PAGE = (ROOT / "docs/language_models.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(python)?\n(.*?)^```", PAGE, re.M | re.S)
# Sizes and updates with which the commands take seconds.
SMALLER = {
    "--vocab-size": "120",
    "--max-update": "2",
    "--warmup-updates": "1",
    "--decoder-layers": "1",
    "--tokens-per-sample": "64",
    "--max-len-b": "3",
}


def smaller(line: str) -> list[str]:
    words = shlex.split(line.replace("--user-dir fairseq_memattn", f"--user-dir {PLUGIN}"))
    for flag, value in SMALLER.items():
        if flag in words:
            words[words.index(flag) + 1] = value
    return words


def test_the_page_runs(corpus, tmp_path, monkeypatch):
    (tmp_path / "my").mkdir()
    for split in ("train", "valid", "test"):
        lines = (corpus / f"{split}.en").read_text("utf-8").splitlines()[:300]
        (tmp_path / f"my/{split}.en").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    outputs = []
    for language, code in BLOCKS:
        if language:
            (tmp_path / "script.py").write_text(code, "utf-8")
            outputs.append(attempt(str(tmp_path / "script.py"), cwd=tmp_path, fresh=True))
        else:
            outputs += [ran(line, tmp_path) for line in code.splitlines()]
    failed = [done.stderr for done in outputs if done.returncode]
    assert failed == []
    printed = "".join(done.stdout for done in outputs)
    assert "stateful, positions restart" in printed and "64 to 127" in printed
    assert "\nH-0\t" in printed and "tensor([" in printed
    assert (tmp_path / "lm/training.png").is_file()
    assert (tmp_path / "lm/exported/config.json").is_file()


def ran(line: str, folder):
    """A command, or `echo TEXT | command`."""
    words = smaller(line)
    given = None
    if words[0] == "echo":
        given, words = f"{words[1]}\n", words[3:]
    if words[0].startswith("fairseq-"):
        words.append("--cpu")
    return attempt(words[0], *words[1:], cwd=folder, stdin=given)


@pytest.mark.parametrize("flag", SMALLER)
def test_what_is_made_smaller_is_there(flag):
    assert f"{flag} " in PAGE
