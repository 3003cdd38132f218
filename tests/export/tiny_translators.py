"""Tiny translators with random weights, in folders as transformers and the model hub have them."""

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import sentencepiece
import torch
import transformers

from fairseq_memattn import cli

TEXT = [
    "a cat sat on the mat .",
    "the dog sings to the sun and to the sea , all day long , and then again at night .",
    "we drink tea .",
    "birds go home to the sea .",
    "on the mat the dog drinks milk , and the cat sings .",
]
UNKNOWN = "a bird ? ?"
OTHER = [line[::-1] for line in TEXT]  # another language
LANGUAGES = {
    **{"marian": ("en", "de"), "m2m": ("en", "de"), "mbart": ("en_XX", "de_DE")},
    "nllb": ("eng_Latn", "deu_Latn"),
}
# Sizes that differ where they can.
SIZES = {
    **{"d_model": 24, "encoder_layers": 3, "decoder_layers": 2, "max_position_embeddings": 90},
    **{"encoder_ffn_dim": 40, "decoder_ffn_dim": 28, "scale_embedding": True},
    **{"encoder_attention_heads": 2, "decoder_attention_heads": 3},
}


def translator(kind: str, folder: Path, **changes: Any) -> Any:
    """The model of transformers that it saves in a new folder.

    kind: marian, m2m, nllb or mbart; changes: of the configuration
    """
    folder.mkdir()
    if kind == "marian":
        settings = marian_vocabulary(folder, changes.get("share_encoder_decoder_embeddings", True))
    else:
        settings = {"vocab_size": multilingual_vocabulary(folder, kind)}
        settings |= {"decoder_start_token_id": 2}
    name = {"marian": "Marian", "mbart": "MBart"}.get(kind, "M2M100")
    model = {"marian": "MarianMTModel"}.get(kind, f"{name}ForConditionalGeneration")
    torch.manual_seed(3)
    config = getattr(transformers, f"{name}Config")(**SIZES | settings | changes)
    made = getattr(transformers, model)(config)
    roughen(made)
    teach(made, tokenizer(kind, folder))
    made.save_pretrained(folder)
    return made.eval()


def roughen(model: Any) -> None:
    """No weight has a special value such as 1."""
    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad:
                weight += 0.1 * torch.randn_like(weight)
        if (bias := getattr(model, "final_logits_bias", None)) is not None:
            bias += 0.3 * torch.randn_like(bias)


def teach(model: Any, words: Any) -> None:
    """So much that translations differ and end, which those of random weights do not."""
    short = [" ".join(line.split()[:number]) for number, line in enumerate(OTHER, start=1)]
    batch = words(TEXT, text_target=short, padding=True, return_tensors="pt")
    labels = batch.pop("labels")
    start = torch.full_like(labels[:, :1], model.config.decoder_start_token_id)
    batch["decoder_input_ids"] = torch.cat([start, labels[:, :-1]], dim=1)
    labels = labels.masked_fill(labels.eq(model.config.pad_token_id), -100)
    optimizer = torch.optim.Adam([x for x in model.parameters() if x.requires_grad], lr=0.01)
    for _ in range(50):
        optimizer.zero_grad()
        model(**batch, labels=labels).loss.backward()
        optimizer.step()


def marian_vocabulary(folder: Path, shared: bool) -> dict[str, Any]:
    """Writes the files of the tokenizer; returns the options that depend on them."""
    source, target = spm(folder / "source.spm", TEXT), spm(folder / "target.spm", OTHER)
    first = ["</s>", "<unk>"]
    # One symbol is none that a dictionary can hold.
    own = [[*first, *source, "a b", *target, "<pad>"]]
    if not shared:
        own = [[*first, "<pad>", *source, "a b"], [*first, "<pad>", *target]]
    for name, symbols in zip(("vocab", "target_vocab"), own, strict=False):
        write_ids(folder / f"{name}.json", symbols)
    told = {"source_lang": "en", "target_lang": "de", "separate_vocabs": not shared}
    told |= {"tokenizer_class": "MarianTokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(told))
    pad = len(set(own[0])) - 1 if shared else 2
    return {
        **{"vocab_size": len(set(own[0])), "decoder_vocab_size": len(set(own[-1]))},
        **{"eos_token_id": 0, "forced_eos_token_id": 0, "pad_token_id": pad},
        **{"decoder_start_token_id": pad, "activation_function": "swish"},
    }


def multilingual_vocabulary(folder: Path, kind: str) -> int:
    """Writes the files of the tokenizer; returns the number of embeddings."""
    model_type = "bpe" if kind == "nllb" else "unigram"
    pieces = spm(folder / "sentencepiece.bpe.model", [*TEXT, *OTHER], model_type)
    name = {"m2m": "m2m_100", "mbart": "mbart50"}.get(kind, kind)
    codes = import_module(f"transformers.models.{name}.tokenization_{name}").FAIRSEQ_LANGUAGE_CODES
    if kind != "m2m":
        symbols = ["<s>", "<pad>", "</s>", "<unk>", *pieces, *codes, "<mask>"]
        if kind == "nllb":  # whose tokenizer reads no languages from SentencePiece's model
            from_pieces = transformers.NllbTokenizer.from_pretrained(folder)
            merges = json.loads(from_pieces.backend_tokenizer.to_str())["model"]["merges"]
            ids = {symbol: number for number, symbol in enumerate(symbols)}
            made = transformers.NllbTokenizer(ids, [tuple(pair) for pair in merges])
            made.save_pretrained(folder)
        return len(symbols) + 2 * (kind == "nllb")
    write_ids(folder / "vocab.json", ["<s>", "<pad>", "</s>", "<unk>", *pieces])
    return 4 + len(pieces) + len(codes["m2m100"]) + 8


def write_ids(path: Path, symbols: list[str]) -> None:
    ids = {symbol: number for number, symbol in enumerate(dict.fromkeys(symbols))}
    path.write_text(json.dumps(ids), encoding="utf-8")


def spm(file: Path, lines: list[str], model_type: str = "unigram") -> list[str]:
    """Trains a SentencePiece model; returns its pieces after the three special ones."""
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines * 3),
        model_prefix=str(file),
        model_type=model_type,
        **{"vocab_size": 34, "num_threads": 1, "minloglevel": 2},
    )
    file.with_name(f"{file.name}.vocab").unlink()
    file.with_name(f"{file.name}.model").rename(file)
    model = sentencepiece.SentencePieceProcessor(model_file=str(file))
    return [model.id_to_piece(number) for number in range(3, len(model))]


def tokenizer(kind: str, folder: Path) -> Any:
    """transformers' tokenizer of a folder."""
    name = {"marian": "Marian", "m2m": "M2M100", "mbart": "MBart50", "nllb": "Nllb"}[kind]
    source, target = LANGUAGES[kind]
    languages = {} if kind == "marian" else {"src_lang": source, "tgt_lang": target}
    return getattr(transformers, f"{name}Tokenizer").from_pretrained(folder, **languages)


def search(kind: str, model: Any, words: Any) -> dict[str, Any]:
    """The arguments of `generate` that published models have."""
    if kind == "marian":
        return {"bad_words_ids": [[model.config.pad_token_id]]}
    _, language = LANGUAGES[kind]
    token = f"__{language}__" if kind == "m2m" else language
    return {"forced_bos_token_id": words.convert_tokens_to_ids(token)}


def imported(kind: str, folder: Path, output: Path) -> int:
    """Writes model.pt and dictionaries/ in the folder `output`; returns the exit status."""
    source, target = LANGUAGES[kind]
    argv = [folder, "--output", output / "model.pt", "--dictionaries", output / "dictionaries"]
    languages = ["--source-lang", source, "--target-lang", target]
    return cli.main(["import-transformers", *map(str, argv), *languages * (kind != "marian")])
