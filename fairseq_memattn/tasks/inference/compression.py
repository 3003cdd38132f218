"""Compresses documents to a store, and computes features from it, with a GMAT (section 2.1)."""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fairseq_memattn.compression.corpus import Corpus, Piece, batches, source_of
from fairseq_memattn.compression.shard import DTYPES, Header, Record, Shard
from fairseq_memattn.compression.store import Store
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.models.gmat_config import GMATBertConfig
from fairseq_memattn.modules.gmat_encoder import GMATEncoder

# fairseq's options, in addition to GMAT's own, that change the outputs of the same weights.
SETTINGS = ("activation_fn", "no_scale_embedding", "layernorm_embedding")
ENCODER_SETTINGS = ("layers", "attention_heads", "normalize_before", "learned_pos")


def encoder_of(model: Any) -> GMATEncoder:
    """The encoder of a model. Raises MemAttnError for a model without compression."""
    encoder = getattr(model, "encoder", None)
    encoder = getattr(encoder, "sentence_encoder", encoder)
    if not isinstance(encoder, GMATEncoder) or not encoder.cfg.gmat_compress_after:
        raise MemAttnError(
            "the model does not compress: it was not trained with --gmat-compress-after"
        )
    return encoder


def header_of(model: Any, task: Any, dtype: str) -> Header:
    """The header of a store of the model."""
    encoder = encoder_of(model)
    symbols = hashlib.sha256("\n".join(task.source_dictionary.symbols).encode()).hexdigest()
    size = encoder.embed_tokens.embedding_dim
    pair = (getattr(task.cfg, "source_lang", None), getattr(task.cfg, "target_lang", None))
    languages = f"{pair[0]} {pair[1]}" if all(pair) else ""
    return Header(fingerprint(model), symbols, encoder.config.memory_slots, size, dtype, languages)


def fingerprint(model: Any) -> str:
    """SHA-256 of the weights and of the settings that evaluation depends on."""
    cfg = encoder_of(model).cfg
    settings = {
        name: str(getattr(cfg, name, None))
        for name in [*SETTINGS, *(f.name for f in fields(GMATBertConfig) if f.name[0] != "_")]
    }
    settings |= {f"encoder.{name}": str(getattr(cfg.encoder, name)) for name in ENCODER_SETTINGS}
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for name, weight in sorted(model.state_dict().items()):
        digest.update(f"{name} {weight.dtype} {tuple(weight.shape)}\n".encode())
        digest.update(weight.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


@dataclass
class Written:
    """The numbers of new records and of their tokens, and of records that the store already had."""

    records: int = 0
    tokens: int = 0
    known: int = 0


@torch.no_grad()
def compress(
    encoder: GMATEncoder,
    corpus: Corpus,
    pieces: Sequence[Piece],
    shard: Shard,
    store: Store,
    max_tokens: int,
    progress: Callable[[int], Any],
) -> Written:
    """Appends the records that the store lacks to the shard, one transaction for each batch.

    Batches do not depend on the store, so an interrupted run that continues gives the same vectors.

    progress: called with the number of records of each batch

    Raises MemAttnError for an id that the store has with another text, and for vectors that the
    store's dtype cannot hold.
    """
    written = Written()
    device = encoder.embed_tokens.weight.device
    for batch in batches([piece.length for piece in pieces], max_tokens):
        chosen = [pieces[number] for number in batch]
        tokens = [corpus.tokens(piece) for piece in chosen]
        sources = [source_of(row) for row in tokens]
        new = [not known(store, p.id, s) for p, s in zip(chosen, sources, strict=True)]
        if any(new):
            padded = pad_sequence(tokens, True, float(encoder.padding_idx)).to(device)
            made = encoder.compress(padded).float().cpu().numpy()
            rows = zip(chosen, sources, made, new, strict=True)
            shard.append(
                [record_of(p, s, m, store.header.dtype) for p, s, m, lacking in rows if lacking]
            )
        written.records += sum(new)
        written.known += len(new) - sum(new)
        written.tokens += sum(p.length for p, lacking in zip(chosen, new, strict=True) if lacking)
        progress(len(chosen))
    return written


def known(store: Store, id: str, source: bytes) -> bool:
    """Whether the store has the document. Raises MemAttnError for another text with that id."""
    found = store.source(id)
    if found is not None and found != source:
        raise MemAttnError(f"{store.folder} already has a record {id!r} with another text")
    return found is not None


@torch.no_grad()
def decompress(
    encoder: GMATEncoder, records: Sequence[str], store: Store, max_tokens: int
) -> Iterator[tuple[str, Tensor]]:
    """Yields each id, in this order, with the encoder's features (L, E) of the document.

    Raises MemAttnError for records that are missing or damaged.
    """
    device = encoder.embed_tokens.weight.device
    waiting: list[Record] = []
    for id in records:
        record = store[id]
        lengths = [*(other.length for other in waiting), record.length]
        if len(batches(lengths, max_tokens)) > 1:
            yield from _features(encoder, waiting, device)
            waiting = []
        waiting.append(record)
    if waiting:
        yield from _features(encoder, waiting, device)


def _features(
    encoder: GMATEncoder, records: list[Record], device: torch.device
) -> Iterator[tuple[str, Tensor]]:
    memory = np.stack([record.vectors for record in records]).astype(np.float32)
    lengths = torch.tensor([record.length for record in records], device=device)
    features = encoder.decompress(torch.from_numpy(memory).to(device), lengths)
    for record, row in zip(records, features, strict=True):
        yield record.id, row[: record.length]


def record_of(piece: Piece, source: bytes, vectors: NDArray[Any], dtype: str) -> Record:
    """The record of a piece with its vectors (M, E).

    Raises MemAttnError for vectors that the dtype cannot hold.
    """
    with np.errstate(over="ignore"):
        stored = vectors.astype(DTYPES[dtype])
    if not np.isfinite(stored).all():
        raise MemAttnError(
            f"document {piece.id!r}: its vectors have numbers that --dtype {dtype} cannot hold"
        )
    return Record(piece.id, piece.length, source, stored)
