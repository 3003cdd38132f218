"""The parts of the package that work without fairseq, and what the others say.

One process, in which fairseq, hydra and omegaconf cannot be imported, does everything; the tests
look at what it prints.
"""

import io
import json
import os
import re
import shlex
import subprocess
import sys
import zipfile
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

import pytest

from fairseq_memattn.cli import COMMANDS, main

ROOT = Path(__file__).parents[1]
HOST = ("fairseq", "fairseq_cli", "hydra", "omegaconf")
MISSING = "needs fairseq, which is missing: on Python 3.11 or 3.12, run `make env`, or `pip install"

# Statements, and the end of the last line that they print.
PROGRAMS = {
    "torch-missing": (
        "from fairseq_memattn.cli import main\n"
        "sys.modules['torch'] = None\n"
        "try: main(['average'])\n"
        "except SystemExit as error: print(error)\n"
        "del sys.modules['torch']",
        "; run `pip install torch==2.13.0`",
    ),
    "attention": (
        "import torch, fairseq_memattn.attention\n"
        "from fairseq_memattn.attention.nn import ABCAttention\n"
        "layer = ABCAttention(8, 2, slots=4, causal=True)\n"
        "print(layer(torch.ones(1, 5, 8)).shape)",
        "torch.Size([1, 5, 8])",
    ),
    "transformers-missing": (
        "sys.modules['transformers'] = None\n"
        "try: import fairseq_memattn.transformers\n"
        "except ImportError as error: print(error)\n"
        "del sys.modules['transformers']",
        "fairseq_memattn.transformers needs transformers, which is missing: run "
        "`pip install 'fairseq-memattn[transformers]'`",
    ),
    "transformers": (
        "import fairseq_memattn.transformers\n"
        "from fairseq_memattn.transformers import register\n"
        "print(register.__name__)",
        "register",
    ),
    "register": (
        "import fairseq_memattn\n"
        "try: fairseq_memattn.register()\n"
        "except ImportError as error: print(error)",
        "pip install --no-build-isolation --no-deps fairseq-fixed==0.12.3.1`",
    ),
}

# The code of the page of networks, and what it says that it prints.
PAGE = (ROOT / "docs/networks.md").read_text("utf-8")
SHOWN = re.findall(r"^```python\n(.*?)^```\n\n```\n(.*?)\n```", PAGE, re.M | re.S)
PROGRAMS |= {f"networks-{number}": shown for number, shown in enumerate(SHOWN)}

# Command lines of `memattn` in a folder with `write_inputs`, and what they print.
WORKING = {
    "--help": "usage: memattn",
    "prepare discourse --output corpus --train-docs 30 --valid-docs 1 --test-docs 1 "
    "--contrast-groups 6": "train    30 documents",
    "prepare own-corpus --text train=corpus/train valid=corpus/valid --langs en ru --output own "
    "--vocab-size 200": "bin: own/bin is ready",
    "prepare wikitext --corpus wikitext-2 --archive wikitext.zip --unchecked --output "
    "wiki": "bin: wiki/bin is ready",
    "score --system corpus/test.en --reference corpus/test.en --docids corpus/test.docid": "d-BLEU",
    "align --system corpus/test.en --reference corpus/test.en --output aligned.en": "distance is 0",
    "contrast --sets set.json --scores scores.txt": "50.0 %",
    "contrast exported --generate --sets forms.json --sources forms.en --lang en --max-len-b "
    "2": "100.0 %",
    "answers --answers answers.json --gold gold.json": "squad          1",
    "average --inputs a.pt b.pt --output mean.pt": "averaged a.pt, b.pt into mean.pt",
    "completion bash": "_memattn",
    "new corpus talks": "wrote talks/prepare.py",
    "doctor": "fairseq                 missing",
    "plot --training train.log --output train.png": "drew train.png",
    "decompress empty --check": "empty is not a store: it has no shards",
    "convert-transformers empty --output new": "empty: must have a config.json or one .gguf file",
    "generate empty --input text.txt": "text.txt, line 2: must have a prompt",
    "translate exported --input text.txt --max-len-b 2": "a a\n\na a\n",
}

# They are refused before they read any of these files, none of which exists.
REFUSED = [
    "archs t5",
    "compress bin --path no.pt --subset train --documents ids --output no",
    "contrast bin --path no.pt --sets no.json",
    "contrast bin --path no.pt --generate --sets no.json --sources no --lang en",
    "convert bin --path no.pt --arch no --output no.pt",
    "cxmi bin --path no.pt",
    "cxmi bin --path no.pt --user-dir no",
    "decompress no --path no.pt --output no.npz",
    "export --path no.pt --data bin --output no",
    "import-bert no --output no.pt --dict no.txt",
    "import-t5 no --output no.pt --dict no.txt",
    "import-transformers no --output no.pt --dictionaries no",
    "perplexity bin --path no.pt",
    "plot bin --path no.pt --text no.txt --output no.png",
    "spans bin --path no.pt",
    "view bin --path no.pt --output no.html",
]


def write_inputs(folder: Path) -> None:
    import torch

    def write(name: str, content: object) -> None:
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / name).write_text(text, encoding="utf-8")

    with zipfile.ZipFile(folder / "wikitext.zip", "w") as archive:
        for split in ("train", "valid", "test"):
            text = " \n = Robert <unk> = \n \n Robert is an actor . \n"
            archive.writestr(f"wikitext-2/wiki.{split}.tokens", text)
    group = {"src": "a _eos b", "dst": ["c _eos d", "c _eos e"], "true_ind": 0, "ctx_dist": 1}
    write("set.json", [group, group])
    write("forms.json", [{"expected": "a", "rule": "A"}])
    write("forms.en", "a<eos> a a\n")
    row = "INFO | train_inner | epoch 1: 1 / 1 loss=3, num_updates=1\n"
    write("train.log", f"2026-01-01 00:00:00 | {row}")
    write("scores.txt", "-1.5\n-2\n-3\n-1\n")
    answers = [{"text": "x", "answer_start": 0}]
    paragraph = {"context": "x", "qas": [{"id": "1", "question": "?", "answers": answers}]}
    write("gold.json", {"version": "1.1", "data": [{"title": "", "paragraphs": [paragraph]}]})
    write("answers.json", {"1": "x"})
    (folder / "empty").mkdir()
    for name, value in (("a.pt", 1.0), ("b.pt", 2.0)):
        state = {"cfg": {"model": {"_name": "t5"}}, "model": {"w": torch.full((2,), value)}}
        state["extra_state"] = {"train_iterator": {"epoch": 1}}
        torch.save(state, folder / name)


def write_exported() -> None:
    """A folder as `memattn export` writes it, of a model that predicts the symbol `a` alone."""
    import torch

    from fairseq_memattn.transformers import (
        BoundedTransformerConfig,
        BoundedTransformerForConditionalGeneration,
    )
    from fairseq_memattn.transformers.tokenizer import MemAttnTokenizer
    from fairseq_memattn.transformers.transformer_config import StackConfig

    Path("text.txt").write_text("a a\n\na\n")
    Path("dict.txt").write_text("a 1\n_eos 1\n")
    sizes = {"vocab_size": 6, "layers": 1, "heads": 1}
    sizes |= dict.fromkeys(("embed_dim", "ffn_dim", "input_dim", "output_dim"), 4)
    windows = {"source_context": 1, "target_context": 1, "max_source": 9, "max_target": 9}
    settings: dict[str, Any] = {
        "encoder_stack": StackConfig(**sizes),
        "decoder_stack": StackConfig(**sizes, source_dim=4),
        "is_encoder_decoder": True,
        "decoder_start_token_id": 2,
        "translation": windows | {"separator": "_eos"},
    }
    model = BoundedTransformerForConditionalGeneration(BoundedTransformerConfig(**settings))
    last = model.decoder.layers[-1].final_layer_norm
    torch.nn.init.zeros_(last.weight)
    torch.nn.init.ones_(last.bias)
    model.lm_head.weight.data = torch.eye(6)[4].unsqueeze(1).expand(6, 4).contiguous()
    model.save_pretrained("exported")
    MemAttnTokenizer("dict.txt", pieces="words").save_pretrained("exported")


def printed_by(command: str) -> str:
    """What a command prints, in this process."""
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out), suppress(SystemExit):
        main(shlex.split(command))
    return out.getvalue()


def run_all() -> None:
    """Prints what each program and each command prints, as JSON."""
    sys.modules |= dict.fromkeys(HOST)  # None: cannot be imported
    found = {}
    for name, (code, _) in PROGRAMS.items():
        out = io.StringIO()
        with redirect_stdout(out):
            exec(code, {"sys": sys})
        found[name] = out.getvalue()
    write_inputs(Path())
    write_exported()
    found |= {command: printed_by(command) for command in [*WORKING, *REFUSED]}
    assert not [name for name in sys.modules if name.startswith(tuple(f"{h}." for h in HOST))]
    print(json.dumps(found))


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, __file__],
        cwd=tmp_path_factory.mktemp("without"),
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program(name: str, printed: dict[str, str]) -> None:
    assert printed[name].rstrip().endswith(PROGRAMS[name][1])


@pytest.mark.parametrize("command", WORKING)
def test_a_command_that_works(command: str, printed: dict[str, str]) -> None:
    assert WORKING[command] in printed[command]
    assert "Traceback" not in printed[command] and MISSING not in printed[command]


@pytest.mark.parametrize("command", REFUSED)
def test_a_command_that_needs_fairseq(command: str, printed: dict[str, str]) -> None:
    [line] = printed[command].splitlines()
    name, _, rest = line.removeprefix("memattn ").partition(": error: ")
    assert name == command.split()[0] and rest.startswith("the command ") and MISSING in rest


def test_every_command_is_here() -> None:
    assert {command.split()[0] for command in [*WORKING, *REFUSED]} == {*COMMANDS, "--help"}


if __name__ == "__main__":
    run_all()
