"""T5's pretraining: the model predicts spans that were removed from its input."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from fairseq import utils
from fairseq.data import Dictionary, data_utils, iterators
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from fairseq.tasks import register_task
from fairseq.tasks.language_modeling import SAMPLE_BREAK_MODE_CHOICES
from omegaconf import II, MISSING

from fairseq_memattn.data import corrupted_spans
from fairseq_memattn.errors import MemAttnError, check_fields, option
from fairseq_memattn.tasks.base import ChunkedTask, warn_of_others

logger = logging.getLogger(__name__)


@dataclass
class SpanCorruptionConfig(FairseqDataclass):
    data: str = option(
        MISSING,
        "folder with binarised text (fairseq-preprocess --only-source); training reads several, "
        "separated by colons, in turn, one each epoch",
    )
    source_length: int = option(
        512,
        "number of tokens of the whole input after corruption, with sentinels and eos; the blocks "
        "of text are longer: by default 568 tokens become 512",
        least=3,
    )
    chunks: int = option(
        1,
        "number of sequences of source-length / chunks tokens that the input is cut into, for "
        "models that take several sequences (t5mem_*)",
        least=1,
    )
    noise_density: float = option(0.15, "fraction of the tokens that is removed", least=0)
    mean_span_length: float = option(3.0, "mean number of tokens of a removed span", least=1)
    sentinels: int = option(
        100,
        "number of symbols <extra_id_0>, <extra_id_1>, ..., added to the end of a dictionary "
        "without them; a block needs one for each span",
        least=1,
        most=corrupted_spans.MOST_SENTINELS,
    )
    sample_break_mode: SAMPLE_BREAK_MODE_CHOICES = option(
        "none",
        "how the text is cut into blocks: none fills blocks across lines; complete fills them "
        "with whole lines; complete_doc with whole lines of one document, which an empty line "
        "ends; eos makes a block of each line. Blocks do not contain line ends",
    )
    seed: int = II("common.seed")


@register_task("span_corruption", dataclass=SpanCorruptionConfig)
class SpanCorruptionTask(ChunkedTask):
    """Removes spans from a text; an encoder-decoder predicts them (T5's objective).

    The data are binarised text of one language, as for masked language models. The spans depend
    on the seed and the block, and in training also on the epoch. The log has the criterion's
    metrics and `loss_nats`, the loss per token in nats.
    """

    cfg: SpanCorruptionConfig

    @classmethod
    def setup_task(cls, cfg: SpanCorruptionConfig, **kwargs: Any) -> "SpanCorruptionTask":
        _check(cfg)
        dictionary = Dictionary.load(str(Path(utils.split_paths(cfg.data)[0]) / "dict.txt"))
        return cls(cfg, dictionary)

    def __init__(self, cfg: SpanCorruptionConfig, dictionary: Any) -> None:
        super().__init__(cfg)
        self.dictionary = dictionary
        self.noise = corrupted_spans.Noise(cfg.noise_density, cfg.mean_span_length)
        self.options = corrupted_spans.SpanOptions(
            noise=self.noise,
            sentinels=corrupted_spans.add_sentinels(dictionary, cfg.sentinels),
            pad=dictionary.pad(),
            eos=dictionary.eos(),
            chunk_length=cfg.source_length // cfg.chunks,
            chunks=cfg.chunks,
            seed=cfg.seed,
        )
        self.split = self.options.chunking.split
        self.block_length = self.noise.block_length(cfg.source_length)
        logger.info(f"dictionary: {len(dictionary)} types, {cfg.sentinels} sentinels among them")

    def needed(self) -> list[tuple[int, str]]:
        lengths = (self.options.chunk_length, self.noise.corrupted(self.block_length)[1])
        return [(length, f"--source-length {self.cfg.source_length}") for length in lengths]

    # Data.

    def load_dataset(
        self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any
    ) -> None:
        """Loads a split. `combine` is True for the training set, as fairseq's trainer passes it."""
        warn_of_others(kwargs.get("task_cfg"), self.cfg, ("source_length", "chunks", "seed"))
        folder = self.folder(epoch, combine)
        prefix = str(folder / split)
        corpus = data_utils.load_indexed_dataset(prefix, self.dictionary, combine=combine)
        if corpus is None:
            raise FileNotFoundError(f"Dataset not found: {split} ({folder})")
        symbols = {"pad": self.dictionary.pad(), "eos": self.dictionary.eos()}
        try:
            blocks = corrupted_spans.text_blocks(
                corpus, self.cfg.sample_break_mode, self.block_length, **symbols
            )
            dataset = corrupted_spans.SpanCorruptionDataset(blocks, self.options, training=combine)
        except MemAttnError as error:
            raise MemAttnError(f"{prefix}: {error}") from None
        logger.info(
            f"{split}: {len(dataset)} blocks of up to {self.block_length} tokens; "
            f"{dataset.left_out} of fewer than 2 are left out"
        )
        self.datasets[split] = dataset

    def get_batch_iterator(
        self,
        dataset: corrupted_spans.SpanCorruptionDataset,
        max_tokens: int | None = None,
        **others: Any,
    ) -> iterators.EpochBatchIterator:
        """Raises MemAttnError for an example that is longer than --max-tokens."""
        longest = int(dataset.num_tokens_vec(np.arange(len(dataset))).max())
        if max_tokens is not None and longest > max_tokens:
            raise MemAttnError(
                f"--max-tokens must be at least the {longest} tokens of the longest example, but "
                f"is {max_tokens}"
            )
        return super().get_batch_iterator(dataset, max_tokens=max_tokens, **others)

    def reduce_metrics(self, logging_outputs: Sequence[dict[str, Any]], criterion: Any) -> None:
        super().reduce_metrics(logging_outputs, criterion)
        metrics.log_derived("loss_nats", corrupted_spans.natural)


def _check(cfg: SpanCorruptionConfig) -> None:
    if not 0 < cfg.noise_density < 1:
        raise MemAttnError(f"--noise-density must be between 0 and 1, but is {cfg.noise_density}")
    check_fields(cfg, SpanCorruptionConfig)
    if cfg.source_length % cfg.chunks:
        raise MemAttnError(
            f"--source-length must be a multiple of --chunks {cfg.chunks}, but is "
            f"{cfg.source_length}"
        )
    noise = corrupted_spans.Noise(cfg.noise_density, cfg.mean_span_length)
    _, spans = noise.counts(noise.block_length(cfg.source_length))
    if spans > cfg.sentinels:
        raise MemAttnError(
            f"--sentinels must be at least {spans}, one for each span of --source-length "
            f"{cfg.source_length}, but is {cfg.sentinels}"
        )
