"""Checkpoints of fairseq 0.9 to 0.12.2, whose plain models the commands read."""

import shlex
from argparse import Namespace

import pytest
import torch
from full import full, others_in_full
from harness import COMMON, LM_SIZES, SOFTMAX, run, train

from fairseq_memattn.host.checkpoints import read_checkpoint

TEXT = shlex.split("--tokens-per-sample 32 --sample-break-mode none")
ADAPTIVE = shlex.split(
    "--task language_modeling --arch transformer_lm --decoder-input-dim 32 --decoder-output-dim 32 "
    "--adaptive-input --adaptive-input-cutoff 20 --adaptive-softmax-cutoff 20 "
    "--tie-adaptive-weights --criterion adaptive_loss --ddp-backend legacy_ddp"
)
MASKED = shlex.split(
    "--task masked_lm --criterion masked_lm --arch roberta_base --encoder-layers 2 "
    "--encoder-embed-dim 32 --encoder-ffn-embed-dim 64 --encoder-attention-heads 2"
)
LM_COMMANDS = ["perplexity {data} --path {old} --subset valid --context-window 0 --cpu"]
LM_COMMANDS += ["export --path {old} --data {data} --tokenizer words --output {out}"]

# Of each plain model: its training, the architecture that it is converted to, other commands.
FAMILIES = {
    "translation": (
        SOFTMAX,
        "abc_window_transformer",
        [
            "export --path {old} --data {data} --tokenizer words --output {out}",
            "contrast {data} --path {old} --sets {sets} --source-context 0 --cpu",
        ],
    ),
    "adaptive": ([*COMMON, *LM_SIZES, *ADAPTIVE, *TEXT], "abc_window_transformer_lm", LM_COMMANDS),
    "masked": ([*COMMON, *MASKED, *TEXT], "abc_window_roberta_base", []),
}


def age(state, release):
    """A checkpoint as an older release writes it: buffers that nothing sets, flat options."""
    weights = state["model"]
    undefined = torch.full((1,), float("nan"))
    for name in [name for name in weights if name.endswith("layers.0.fc1.weight")]:
        weights[name.replace("layers.0.fc1.weight", "embed_positions._float_tensor")] = undefined
    state["model"] |= {name: undefined for name in weights if name.endswith("._float_tensor")}
    if release < "0.10":
        parts = {
            name: vars(part) if isinstance(part, Namespace) else dict(part)
            for name, part in state["cfg"].items()
            if part and not isinstance(part, str)
        }
        options = {name: value for part in parts.values() for name, value in part.items()}
        for name in ("task", "criterion", "optimizer", "lr_scheduler"):
            options[name] = parts[name]["_name"]
        state |= {"cfg": None, "args": Namespace(**options, arch=parts["model"]["_name"])}
    return state


@pytest.mark.parametrize("release", ["0.9", full("0.12.2")])
@pytest.mark.parametrize("family", others_in_full(FAMILIES, ["translation", "masked"]))
def test_every_command_reads_it(family, release, corpus, bilingual, monolingual, tmp_path):
    data = bilingual if family == "translation" else monolingual
    flags, arch, commands = FAMILIES[family]
    new = train(data, tmp_path / "new", *flags, "--max-update", 1).checkpoint
    old = tmp_path / "old.pt"
    torch.save(age(read_checkpoint(new), release), old)
    names = {"old": old, "data": data, "out": tmp_path / "out"}
    names |= {"averaged": tmp_path / "averaged.pt", "sets": corpus / "contrast/deixis.json"}
    average = f"average --inputs {new} {{old}} --output {{averaged}}"
    convert = f"convert {{data}} --path {{old}} --arch {arch} --output {{averaged}}"
    for command in (average, convert, *commands):
        run("memattn", *command.format(**names).split())
