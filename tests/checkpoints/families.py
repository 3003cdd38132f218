"""The small models whose checkpoints are kept here, and how one is loaded, run and trained on.

`FAMILIES` has the flags of each. `write.py` trains them; `test_old_checkpoints.py` loads them.
"""

import io
import lzma
import shlex
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from fairseq.checkpoint_utils import load_model_ensemble_and_task
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor, nn

HERE = Path(__file__).parent
UPDATES = 2  # of each training whose checkpoint is kept

ENCODER = "--encoder-layers 1 --encoder-embed-dim 4 --encoder-ffn-embed-dim 5"
ENCODER += " --encoder-attention-heads 2"
DECODER = ENCODER.replace("encoder", "decoder")
POSITIONS = "--max-source-positions 16 --max-target-positions 16"
TASKS = {
    "translation": f"translation {ENCODER} {DECODER} {POSITIONS}",
    "document_translation": f"document_translation {ENCODER} {DECODER} {POSITIONS} "
    "--source-context 2 --target-context 0",
    "language_modeling": f"language_modeling {DECODER} --tokens-per-sample 12",
    "masked_lm": f"masked_lm --criterion masked_lm {ENCODER} --tokens-per-sample 16 "
    "--sample-break-mode eos --max-positions 16 --attention-dropout 0",
    "one_set_of_weights": f"translation {ENCODER} {POSITIONS} --attention-dropout 0",  # GenBERT
}
TRAINING = "--optimizer adam --lr 0.01 --batch-size 8 --required-batch-size-multiple 1 --seed 1"
TRAINING += " --num-workers 0 --no-epoch-checkpoints --disable-validation --cpu --log-format json"
TRAINING += " --dropout 0"

CROSS = "--abc-cross-slots 6"
CAUSAL = "--abc-causal-slots 6"
ENCODER_OF_TWO, DECODER_OF_TWO = "--encoder-layers 2", "--decoder-layers 2"
OF_TWO = f"{ENCODER_OF_TWO} {DECODER_OF_TWO}"
WHOLE = f"{CROSS} {CAUSAL} --abc-encoder-slots 6"
SHORT = "--abc-max-length 16"
GMAT = "--gmat-chunk 4 --gmat-memory 3"

# name: (task, flags)
FAMILIES = {
    "abc_mlp": ("translation", f"--arch abc_mlp_transformer {WHOLE} {OF_TWO} --abc-activation exp"),
    "abc_mlp_separate": (
        "translation",
        f"--arch abc_mlp_transformer {WHOLE} {OF_TWO} --abc-phi-layers separate "
        "--abc-phi-heads shared --share-all-embeddings --abc-activation sigmoid",
    ),
    "abc_gated": ("translation", f"--arch abc_gated_transformer {WHOLE}"),
    "abc_linformer": ("translation", f"--arch abc_linformer_transformer {WHOLE} {SHORT}"),
    "abc_random": ("translation", f"--arch abc_random_transformer {WHOLE} {SHORT}"),
    "abc_clustering": ("translation", f"--arch abc_clustering_transformer {WHOLE}"),
    "abc_compressive": ("translation", f"--arch abc_compressive_transformer {WHOLE}"),
    "abc_global": ("translation", f"--arch abc_global_transformer {WHOLE} --abc-stride 2"),
    "abc_global_positions": (
        "translation",
        f"--arch abc_global_transformer {WHOLE} --abc-global-positions 0,3,5 --abc-stride 2",
    ),
    "abc_local_global": (
        "translation",
        f"--arch abc_local_global_transformer {WHOLE} --abc-local-window 3 --abc-stride 4",
    ),
    "abc_window": ("translation", f"--arch abc_window_transformer {WHOLE} --seed 2"),
    "abc_dilated": ("translation", f"--arch abc_dilated_transformer {WHOLE}"),
    "abc_strided": ("translation", f"--arch abc_strided_transformer {WHOLE} --abc-stride 3"),
    "abc_workspace": (
        "translation",
        f"--arch abc_workspace_transformer {CROSS} --abc-causal-slots 0 "
        f"--abc-encoder-slots 6 {OF_TWO}",
    ),
    "elu": ("translation", f"--arch elu_transformer {WHOLE}"),
    "rfa": ("translation", f"--arch rfa_transformer {WHOLE}"),
    "rfa_gated": ("translation", f"--arch rfa_transformer {WHOLE} --abc-rfa-gate"),
    "t2r": ("translation", f"--arch t2r_transformer {WHOLE} {OF_TWO}"),
    "abc_mlp_lm": (
        "language_modeling",
        f"--arch abc_mlp_transformer_lm {CAUSAL} {DECODER_OF_TWO} --abc-activation exp",
    ),
    "abc_linformer_lm": (
        "language_modeling",
        f"--arch abc_linformer_transformer_lm {CAUSAL} {SHORT} "
        "--criterion adaptive_loss --ddp-backend legacy_ddp "
        "--adaptive-softmax-cutoff 8,16 --adaptive-softmax-factor 2 --adaptive-input "
        "--adaptive-input-cutoff 8,16 --adaptive-input-factor 2",
    ),
    "rfa_lm": ("language_modeling", f"--arch rfa_transformer_lm {CAUSAL} --abc-rfa-gate"),
    "abc_mlp_roberta": (
        "masked_lm",
        f"--arch abc_mlp_roberta --abc-encoder-slots 6 {ENCODER_OF_TWO}",
    ),
    "abc_workspace_roberta": (
        "masked_lm",
        f"--arch abc_workspace_roberta --abc-encoder-slots 6 {ENCODER_OF_TWO}",
    ),
    "t5": ("translation", f"--arch t5 --share-all-embeddings {OF_TWO}"),
    "t5_scaled": ("translation", "--arch t5 --t5-scale-embeddings --t5-head-dim 3"),
    "t5mem_v1": ("document_translation", "--arch t5mem_v1 --share-all-embeddings"),
    "t5mem_v2": ("document_translation", "--arch t5mem_v2"),
    "t5mem_v3": ("document_translation", f"--arch t5mem_v3 --t5mem-selector-query layer {OF_TWO}"),
    "t5mem_v4": ("document_translation", "--arch t5mem_v4 --t5mem-slots 1"),
    "t5mem_ws": ("document_translation", f"--arch t5mem_ws {OF_TWO}"),
    "t5mem_ws_wma": ("document_translation", "--arch t5mem_ws_wma"),
    "gmat_bert": ("masked_lm", f"--arch gmat_bert {GMAT} {ENCODER_OF_TWO}"),
    "gmat_bert_untied": ("masked_lm", f"--arch gmat_bert {GMAT} --gmat-memory-projections qkvo"),
    "gmat_bert_window": (
        "masked_lm",
        f"--arch gmat_bert {GMAT} --gmat-sparsity window --gmat-window 2",
    ),
    "gmat_bert_lsh": ("masked_lm", f"--arch gmat_bert {GMAT} --gmat-sparsity lsh"),
    "gmat_bert_compression": (
        "masked_lm",
        f"--arch gmat_bert {GMAT} --gmat-compress-after 1 --gmat-memory-layers 1 "
        "--encoder-layers 3",
    ),
    "gmat_transformer": ("translation", f"--arch gmat_transformer {GMAT} {OF_TWO}"),
    "gmat_transformer_abc": (
        "translation",
        f"--arch gmat_transformer {GMAT} --gmat-decoder-control gated {CROSS} {CAUSAL}",
    ),
    "gmat_genbert": ("one_set_of_weights", f"--arch gmat_genbert {GMAT} {ENCODER_OF_TWO}"),
    "gmat_genbert_last": (
        "one_set_of_weights",
        f"--arch gmat_genbert {GMAT} --gmat-memory-projections qkv --decoder-layers 1 "
        "--encoder-layers 2",
    ),
}


def data_of(name: str) -> Path:
    """The binarised data of a family, relative to this folder."""
    task = FAMILIES[name][0]
    return Path("data", "text" if task in ("language_modeling", "masked_lm") else "pairs")


def checkpoint(name: str, folder: Path) -> Path:
    """Unpacks the checkpoint of a family into `folder`, under the name that training resumes."""
    path = folder / "checkpoint_last.pt"
    path.write_bytes(lzma.decompress((HERE / "kept" / f"{name}.pt.xz").read_bytes()))
    return path


def expected(name: str) -> dict[str, Any]:
    """What the version that wrote the checkpoint computed from it (write.py lists the keys)."""
    with lzma.open(HERE / "kept" / f"{name}.expected.pt.xz") as file:
        return torch.load(io.BytesIO(file.read()))


def load(path: Path, data: Path) -> tuple[nn.Module, Any]:
    """The model of a checkpoint, for evaluation, and its task."""
    overrides = {"data": str(data)}
    (model,), _, task = load_model_ensemble_and_task([str(path)], arg_overrides=overrides)
    return model.eval(), task


def train(name: str, data: Path, folder: Path, updates: int) -> Path:
    """Trains a family by fairseq-train up to `updates`, from a checkpoint in `folder` if any."""
    from fairseq_cli.train import cli_main

    task, flags = FAMILIES[name]
    argv = shlex.split(f"fairseq-train {data} --task {TASKS[task]} {TRAINING} {flags}")
    argv += ["--save-dir", str(folder), "--max-update", str(updates)]
    with mock.patch.object(sys, "argv", argv):
        cli_main()
    return folder / "checkpoint_last.pt"


def batch(task: Any) -> dict[str, Tensor]:
    """What the model sees of the first three examples of the training data."""
    task.load_dataset("train")
    data = task.dataset("train")
    if hasattr(data, "set_epoch"):
        data.set_epoch(1)
    sample: dict[str, Any] = data.collater([data[number] for number in range(3)])
    return sample["net_input"]


@torch.no_grad()
def logits(model: Any, inputs: dict[str, Tensor]) -> Tensor:
    """Log-probabilities, where an adaptive softmax has no logits."""
    out = model(**inputs)
    adaptive = getattr(getattr(model, "decoder", None), "adaptive_softmax", None)
    values: Tensor = out[0] if adaptive is None else model.get_normalized_probs(out, log_probs=True)
    return values


@torch.no_grad()
def search(model: nn.Module, task: Any, inputs: dict[str, Tensor], beam: int) -> list[list[int]]:
    """The tokens of the best translation of each sentence, of at most eight."""
    generator = SequenceGenerator([model], task.target_dictionary, beam_size=beam, max_len_b=8)
    found = generator.generate([model], {"net_input": dict(inputs)})
    return [sentence[0]["tokens"].tolist() for sentence in found]


def optimised(model: nn.Module) -> list[str]:
    """The names of the parameters in the order in which Adam's state numbers them."""
    return [name for name, weight in model.named_parameters() if weight.requires_grad]
