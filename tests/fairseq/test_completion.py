"""`memattn completion`: the shells complete commands, options, choices and files."""

import shutil
import subprocess

import pytest

from fairseq_memattn.cli import COMMANDS, main

ASK = """source ./script
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _shtab_memattn; printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def script(tmp_path, capsys):
    assert main(["completion", "bash"]) == 0
    (tmp_path / "script").write_text(capsys.readouterr().out)
    (tmp_path / "reference.de").write_text("")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("memattn perp", ["perplexity"]),
        ("memattn plot --attention c", ["cross", "causal"]),
        ("memattn prepare documents sp", ["split"]),
        ("memattn score --reference ref", ["reference.de"]),
        ("memattn convert --arch abc_mlp_transformer_w", ["abc_mlp_transformer_wmt_en_de"]),
        ("memattn archs t5mem_ws_", ["t5mem_ws_wma"]),
    ],
)
def test_bash(words, completed, script):
    argv = ["bash", "-c", ASK, "ask", *words.split()]
    done = subprocess.run(argv, cwd=script, capture_output=True, text=True)
    assert done.stdout.split() == completed


@pytest.mark.parametrize("shell", ["zsh", "tcsh"])
def test_other_shells(shell, capsys, tmp_path):
    assert main(["completion", shell]) == 0
    text = capsys.readouterr().out
    for command in COMMANDS:
        assert command in text
    if shutil.which(shell):
        (tmp_path / "script").write_text(text)
        assert subprocess.run([shell, "-n", tmp_path / "script"]).returncode == 0
