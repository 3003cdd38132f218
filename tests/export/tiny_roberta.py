"""A tiny RoBERTa of fairseq, its data, and transformers' own RoBERTa as its counterpart."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import fairseq.models.roberta
import pytest
import torch
from fairseq import options, tasks
from preparing import prepare as run_preparation
from transformers import RobertaConfig, RobertaForMaskedLM
from transformers.models.auto import tokenization_auto

from fairseq_memattn import cli
from fairseq_memattn.cli.shared.hf_checkpoint import checkpoint
from fairseq_memattn.data_prep.commands import own_corpus
from fairseq_memattn.export.converters import CONVERTERS
from fairseq_memattn.host.messages.handler import quiet_known_warnings
from fairseq_memattn.transformers.tokenizer import MemAttnTokenizer

ROBERTA = fairseq.models.roberta.RobertaModel
LINES = ["the old house is red", "a red house", "the dog sees the old dog", "is the dog red"]
FLAGS = (
    "--task masked_lm --arch roberta --encoder-layers 1 --encoder-embed-dim 8 --dropout 0.2 "
    "--encoder-ffn-embed-dim 8 --encoder-attention-heads 2 --max-positions 30 --lr 0.01 "
    "--tokens-per-sample 30 --sample-break-mode eos --optimizer adam --adam-betas (0.9,0.98)"
)
NAMES = {
    "encoder.sentence_encoder.embed_tokens": "roberta.embeddings.word_embeddings",
    "encoder.sentence_encoder.embed_positions": "roberta.embeddings.position_embeddings",
    "encoder.sentence_encoder.layernorm_embedding": "roberta.embeddings.LayerNorm",
    "encoder.sentence_encoder.layers": "roberta.encoder.layer",
    "encoder.lm_head": "lm_head",
    "self_attn.q_proj": "attention.self.query",
    "self_attn.k_proj": "attention.self.key",
    "self_attn.v_proj": "attention.self.value",
    "self_attn.out_proj": "attention.output.dense",
    "self_attn_layer_norm": "attention.output.LayerNorm",
    "fc1": "intermediate.dense",
    "fc2": "output.dense",
    "final_layer_norm": "output.LayerNorm",
    "lm_head.weight": "lm_head.decoder.weight",
}


def stand_in(model, task) -> RobertaForMaskedLM:
    """transformers' own RoBERTa with the weights of fairseq's."""
    args, dictionary = model.args, task.source_dictionary
    config = RobertaConfig(
        vocab_size=len(dictionary),
        hidden_size=args.encoder_embed_dim,
        num_hidden_layers=args.encoder_layers,
        num_attention_heads=args.encoder_attention_heads,
        intermediate_size=args.encoder_ffn_embed_dim,
        max_position_embeddings=args.max_positions + 2,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
        pad_token_id=dictionary.pad(),
    )
    made = RobertaForMaskedLM(config)
    weights = {}
    for name, weight in model.state_dict().items():
        for theirs, ours in NAMES.items():
            name = name.replace(theirs, ours)
        weights[name] = weight
    weights["lm_head.decoder.bias"] = weights["lm_head.bias"]
    weights["roberta.embeddings.token_type_embeddings.weight"] = torch.zeros(1, 8)
    weights.pop("encoder.sentence_encoder.version", None)
    made.load_state_dict(weights)
    return made


@contextmanager
def registered() -> Iterator[None]:
    """Roberta is converted by `stand_in`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(CONVERTERS, ROBERTA, stand_in)
        # As the registration of any family of models does.
        classes = tokenization_auto.REGISTERED_TOKENIZER_CLASSES
        patch.setitem(classes, MemAttnTokenizer.__name__, MemAttnTokenizer)
        yield


def prepare(folder: Path) -> Path:
    """A folder of `memattn prepare own-corpus`, data/, and a model for it, model.pt."""
    (folder / "train.en").write_text("\n".join(LINES * 3) + "\n")
    text = f"--text train={folder}/train valid={folder}/train --langs en --vocab-size 20"
    assert run_preparation(own_corpus, [*text.split(), "--output", str(folder / "data")]) == 0
    argv = [str(folder / "data/bin"), *FLAGS.split()]
    args = options.parse_args_and_arch(options.get_training_parser(), argv)
    task = tasks.setup_task(args)
    torch.manual_seed(1)
    model = task.build_model(args)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    cls, weights = type(model), model.state_dict()
    with warnings.catch_warnings():
        quiet_known_warnings()
        state = checkpoint(cls, FLAGS.split(), weights, task.source_dictionary, device="cpu")
    state["cfg"]["task"]["data"] = "elsewhere"
    torch.save(state, folder / "model.pt")
    return folder


def export(prepared: Path, output: Path, *flags: object, **given: object) -> int:
    values = {"path": prepared / "model.pt", "data": prepared / "data/bin", "output": output}
    argv = [x for name, value in (values | given).items() for x in (f"--{name}", str(value))]
    return cli.main(["export", *argv, *map(str, flags)])
