"""A control of one's own: the folder that docs/controls.md makes, given as --user-dir."""

import re
from pathlib import Path

import pytest
import torch
from harness import (
    COMMON,
    LANGUAGE_MODEL,
    ROOT,
    SIZES,
    TRANSLATOR,
    attempt,
    hypotheses,
    lines_of,
    run,
)

COMMAND = "--max-update 3 --abc-turns 2".split()


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    text = (ROOT / "docs" / "controls.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    made = tmp_path_factory.mktemp("own") / "my_controls"
    made.mkdir()
    (made / "__init__.py").write_text(code, encoding="utf-8")
    return made


def with_own(flags, folder: Path) -> list[str]:
    """The flags, with `folder` in the place of the package as the user directory."""
    flags = [str(flag) for flag in flags]
    flags[flags.index("--user-dir") + 1] = str(folder)
    return flags


def in_turn(flags, arch: str, folder: Path) -> list[str]:
    flags = with_own(flags, folder)
    flags[flags.index("--arch") + 1] = arch
    return [*flags, *COMMAND]


@pytest.fixture(scope="module")
def trained(folder, bilingual, tmp_path_factory) -> Path:
    """The checkpoint of a translator, trained in a process of its own."""
    saved = tmp_path_factory.mktemp("translator")
    flags = [*in_turn(TRANSLATOR, "abc_in_turn_transformer", folder), "--save-dir", saved]
    run("fairseq-train", bilingual, *flags, fresh=True)
    return saved / "checkpoint_last.pt"


def test_translates_in_a_fresh_process(folder, bilingual, corpus, trained):
    flags = ["--user-dir", folder, "--cpu", "--path", trained, "--max-len-b", 6]
    flags += ["--beam", 3, "--required-batch-size-multiple", 1]
    together = hypotheses(run("fairseq-generate", bilingual, *flags, fresh=True).stdout)
    assert len(together) == len(lines_of(corpus / "test.en"))


def test_a_folder_that_forgets_to_register(folder, bilingual, trained, tmp_path):
    """What docs/controls.md says of it."""
    code = (folder / "__init__.py").read_text(encoding="utf-8")
    forgetful = tmp_path / "forgetful"
    forgetful.mkdir()
    without = re.sub(r"^fairseq_memattn\.register\(\).*$", "", code, flags=re.MULTILINE)
    assert without != code
    (forgetful / "__init__.py").write_text(without, encoding="utf-8")
    flags = in_turn(TRANSLATOR, "abc_in_turn_transformer", forgetful)
    done = attempt("fairseq-train", bilingual, *flags, fresh=True)
    assert done.returncode == 2
    assert "invalid choice: 'abc_in_turn_transformer'" in done.stderr.splitlines()[-1]
    flags = ["--user-dir", forgetful, "--cpu", "--path", trained]
    assert attempt("fairseq-generate", bilingual, *flags, fresh=True).returncode == 1


def test_memattn_takes_the_folder(folder, bilingual, trained, tmp_path):
    drawn = tmp_path / "memory.png"
    flags = [bilingual, "--path", trained, "--output", drawn, "--user-dir"]
    run("memattn", "plot", *flags, folder, fresh=True)
    assert drawn.stat().st_size > 0


def test_the_checkpoint_remembers_the_option(trained):
    assert torch.load(trained, weights_only=False)["cfg"]["model"].abc_turns == 2


ROBERTA = [
    *(*COMMON, *SIZES[:2], *SIZES[4:6], *SIZES[8:10], *SIZES[12:14]),
    *"--task masked_lm --criterion masked_lm --arch roberta --abc-encoder-slots 6".split(),
    *"--tokens-per-sample 32 --sample-break-mode none".split(),
]


@pytest.mark.parametrize("arch, flags", [("transformer_lm", LANGUAGE_MODEL), ("roberta", ROBERTA)])
def test_the_other_architectures(arch, flags, folder, monolingual, tmp_path):
    flags = in_turn(flags, f"abc_in_turn_{arch}", folder)
    run("fairseq-train", monolingual, *flags, "--save-dir", tmp_path, fresh=True)
    model = torch.load(tmp_path / "checkpoint_last.pt", weights_only=False)["cfg"]["model"]
    assert model.abc_turns == 2


TWINS = """
from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import one_hot

import fairseq_memattn
from fairseq_memattn.attention.controls import ControlOptions, option, register_control
from fairseq_memattn.attention.controls.base import PositionControl


@dataclass(frozen=True)
class SlowOptions(ControlOptions):
    turns: int = option(3, "tokens in a row", at_least=2)
    stride: int = option(5, "tokens between two writes", at_least=3)


@dataclass(frozen=True)
class FastOptions(ControlOptions):
    turns: int = option(7, "tokens in a row, fewer of them", at_least=1)


class Turning(PositionControl):
    def __init__(self, sizes, options) -> None:
        super().__init__(sizes, options)
        self.options = options

    def phi(self, positions: Tensor) -> Tensor:
        slots = positions.div(self.options.turns, rounding_mode="floor") % self.slots
        return one_hot(slots, self.slots).unsqueeze(1).float()


@register_control("slow")
class SlowControl(Turning):
    Options = SlowOptions


@register_control("fast")
class FastControl(Turning):
    Options = FastOptions


fairseq_memattn.register()
"""

# (flags, --abc-turns, --abc-stride): each architecture has the defaults of its own control.
SHOWN = [
    (["--arch", "abc_slow_transformer"], 3, 5),
    (["--arch", "abc_fast_transformer"], 7, 2),
    (["--arch", "abc_dilated_transformer"], 3, 2),
    (["--arch", "abc_slow_transformer", "--abc-turns", "2"], 2, 5),
]
SHOW = f"""
import sys
from fairseq import options
data = ["DATA", "--user-dir", sys.argv[1]]
for flags, turns, stride in {SHOWN}:
    sys.argv[1:] = [*data, *flags]
    args = options.parse_args_and_arch(options.get_training_parser())
    assert (args.abc_turns, args.abc_stride) == (turns, stride), (flags, args)
from argparse import ArgumentParser
from fairseq_memattn.modules.control_flags import add_control_flags
parser = ArgumentParser()
add_control_flags(parser)
parser.print_help()
"""


def test_an_option_of_several_controls(tmp_path):
    """Two controls share `turns`, and `stride` is an option of controls in the package."""
    package = tmp_path / "twins"
    package.mkdir()
    (package / "__init__.py").write_text(TWINS, encoding="utf-8")
    show = tmp_path / "show.py"
    show.write_text(SHOW, encoding="utf-8")
    shown = " ".join(run(str(show), package, fresh=True).stdout.split())
    assert "slow: tokens in a row; fast: tokens in a row, fewer of them" in shown
