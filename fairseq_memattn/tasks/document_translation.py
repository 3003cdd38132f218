"""Document translation: every sentence with the previous sentences of its document as context."""

import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from fairseq import utils
from fairseq.data import Dictionary, iterators
from fairseq.dataclass import ChoiceEnum
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.sequence_generator import SequenceGenerator
from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from omegaconf import II
from torch import Tensor, nn

from fairseq_memattn.data.documents.batches import ShardIterator, check_sizes, document_batches
from fairseq_memattn.data.documents.collation import WindowCollater, WindowOptions
from fairseq_memattn.data.documents.dataset import DocumentDataset, SentenceDataset
from fairseq_memattn.data.documents.mixture import numbers_of, weights_of
from fairseq_memattn.data.documents.segments import SegmentDataset
from fairseq_memattn.data.documents.splits import check_separator, load_split
from fairseq_memattn.documents.decoder import Hypotheses
from fairseq_memattn.errors import MemAttnError, check_fields, check_least, flag, option
from fairseq_memattn.evaluation.tokenizers import tokenizer_warning
from fairseq_memattn.host.correctness.workers import replace_batches
from fairseq_memattn.tasks import validation
from fairseq_memattn.tasks.base import other_options
from fairseq_memattn.tasks.inference.context_generator import (
    ContextEnsemble,
    MemoryEnsemble,
    check_generation,
)
from fairseq_memattn.tasks.inference.session import LINES, DocumentSession, SessionOptions

logger = logging.getLogger(__name__)

LOSSES = ChoiceEnum(["window", "current", "last"])
# Flags of fairseq's translation task without an effect, and the values that ask for none.
UNUSED = {"load_alignments": False, "truncate_source": False, "num_batch_buckets": 0}


@dataclass
class DocumentTranslationConfig(TranslationConfig):
    """The flags of the task, in addition to those of fairseq's translation task."""

    source_context: int = option(
        3, "number of previous source sentences that the model sees", least=0
    )
    target_context: int = option(
        3,
        "number of previous target sentences that the model sees; in generation these are its own "
        "translations",
        least=0,
    )
    context_separator: str = option(
        "_eos", "symbol between two sentences of a window, added to dictionaries without it"
    )
    loss_on: LOSSES = option(  # type: ignore[valid-type]
        "window",
        "compute the loss on the whole target window (window), its last sentence only (current), "
        "or the last sentence of each document only, whose other sentences are then context "
        "alone (last); memattn score --last-of-documents scores the same",
    )
    sample_context: bool = option(
        False,
        "draw the number of context sentences, from 0 to the maximum, anew for each window and "
        "epoch, so that one model works with and without context",
    )
    source_token: str = option(
        "", "symbol before each source window: the language of a multilingual model, as eng_Latn"
    )
    target_token: str = option("", "symbol before each target window, which generation begins with")
    stream: bool = option(
        False,
        "carry the memories of a decoder, such as abc_mlp_transformer's, from sentence to sentence "
        "of a document, instead of windows of sentences: a sentence's cost does not depend on the "
        "number of sentences before it. Needs --source-context 0 and --target-context 0",
    )
    stream_sentences: int = option(
        16,
        "with --stream: the largest number of sentences of a document that are trained together, "
        "and so the longest distance that the loss reaches back. Longer documents are trained in "
        "segments; generation has no limit",
        least=1,
    )
    sampling_weights: str = option(
        "",
        "how often an epoch reads each part of the training set, train, train1, ..., as numbers "
        "separated by commas: with 2,0.25 the first part twice and a quarter of the second, "
        "another quarter in the next epoch (default: each part once)",
    )
    sampling_temperature: float = option(
        1.0,
        "read the smaller parts of the training set more often: n examples count as n^(1/T), and "
        "the largest part is read once",
        least=1,
    )
    gold_target_context: bool = option(
        False,
        "generate with the references of the previous sentences as target context; for analysis, "
        "since new text has no references",
    )
    parallel_documents: int = option(
        256,
        "number of documents that are translated side by side; more documents fill batches "
        "better, fewer print the first translations sooner",
        least=1,
    )
    eval_bleu_tokenizer: str = option(
        "13a",
        "sacreBLEU's tokenizer of the BLEU that --eval-bleu logs, such as zh, ja-mecab, ko-mecab, "
        "flores200 or char",
    )
    seed: int = II("common.seed")
    best_checkpoint_metric: str = II("checkpoint.best_checkpoint_metric")


@register_task("document_translation", dataclass=DocumentTranslationConfig)
class DocumentTranslationTask(TranslationTask):
    """Translates each sentence in a window with the sentences before it in its document.

    The data are those of fairseq-preprocess, one sentence a line, with
    `{split}.{src}-{tgt}.docids` beside them (docs/documents.md). Any encoder-decoder works: it sees
    a window as one sequence with separators. A model with a true attribute `takes_sequences` gets
    the source sentences as separate tensors instead.
    """

    cfg: DocumentTranslationConfig

    @classmethod
    def setup_task(cls, cfg: DocumentTranslationConfig, **kwargs: Any) -> "DocumentTranslationTask":
        _check(cfg)
        return super().setup_task(cfg, **kwargs)

    def __init__(self, cfg: DocumentTranslationConfig, src_dict: Any, tgt_dict: Any) -> None:
        super().__init__(cfg, src_dict, tgt_dict)
        dictionaries = (src_dict, tgt_dict)
        # Text that holds the separator itself has it in its dictionary: see `load_dataset`.
        self.separator_in_text = any(cfg.context_separator in one for one in dictionaries)
        for dictionary in dictionaries:
            dictionary.add_symbol(cfg.context_separator)
        self.takes_sequences = False
        self.positions = self.max_positions()  # of the longest windows that all models take
        self.computes_loss = False
        self.warned: set[str] = set()
        self.sessions: dict[str, DocumentSession] = {}
        self.lines_read = 0  # by fairseq-interactive
        self.batches: dict[str, iterators.EpochBatchIterator] = {}  # by data set, the last ones
        self.measures = validation.text_metrics(cfg) if cfg.eval_bleu else {}

    def adapt_to(self, model: Any) -> None:
        """Reads data as a model, or a class of models, takes them: call it before `load_dataset`.

        `build_model` calls it for its model.
        """
        self.takes_sequences = bool(getattr(model, "takes_sequences", False))

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> nn.Module:
        if from_checkpoint:
            self._warn_of_other_windows(cfg)
        name = getattr(cfg, "_name", None) or getattr(cfg, "arch", "")
        if self.cfg.stream and not getattr(ARCH_MODEL_REGISTRY.get(name), "can_stream", False):
            raise MemAttnError(
                "--stream needs a decoder with bounded memories, such as abc_mlp_transformer, but "
                f"--arch is {name}"
            )
        model = super().build_model(cfg, from_checkpoint)
        self.adapt_to(model)
        if self.takes_sequences and (self.cfg.source_token or self.cfg.target_token):
            raise MemAttnError(f"--source-token and --target-token do not work with --arch {name}")
        self.positions = utils.resolve_max_positions(self.positions, model.max_positions())
        return model

    def build_criterion(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """Commands with a criterion evaluate windows; those without one translate sentences.

        Raises MemAttnError for a loss per sentence with --stream, of which fairseq counts the rows
        that fill up shorter segments.
        """
        if self.cfg.stream and getattr(cfg, "sentence_avg", False):
            raise MemAttnError(
                "--sentence-avg does not work with --stream, whose batches have empty rows beside "
                "those of sentences; leave it out"
            )
        self.computes_loss = True
        return super().build_criterion(cfg, from_checkpoint)

    def _warn_of_other_windows(self, trained: Any) -> None:
        """Warns of other windows than those of training.

        Raises MemAttnError for another separator, whose embedding is not trained, and for windows
        where training carried memories, or the reverse.
        """
        separator = getattr(trained, "context_separator", None)
        if separator not in (None, self.cfg.context_separator):
            raise MemAttnError(
                f"--context-separator must be {separator!r}, with which the model was trained, but "
                f"is {self.cfg.context_separator!r}"
            )
        if hasattr(trained, "source_context"):
            streamed = bool(getattr(trained, "stream", False))
            if streamed != self.cfg.stream:
                raise MemAttnError(
                    f"--stream must be {'given' if streamed else 'left out'}: the model was "
                    f"trained {'with' if streamed else 'without'} it"
                )
        names = ("source_context", "target_context", "source_token", "target_token")
        for name, message in other_options(trained, self.cfg, names).items():
            if name not in self.warned:
                logger.warning(message)
                self.warned.add(name)

    # Data.

    def load_dataset(
        self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any
    ) -> None:
        """Loads a split. `combine` is True for the training set, as fairseq's trainer passes it."""
        self._warn_of_other_windows(kwargs.get("task_cfg"))
        cfg = self.cfg
        paths = utils.split_paths(cfg.data)
        folder = Path(paths[(epoch - 1) % len(paths) if combine else 0])
        dataset = load_split(
            folder,
            split,
            ((cfg.source_lang, self.src_dict), (cfg.target_lang, self.tgt_dict)),
            self._windows(),
            dataset_impl=cfg.dataset_impl,
            training=combine,
        )
        if self.separator_in_text:
            check_separator(dataset, cfg.context_separator)
        logger.info(f"{split}: {len(dataset)} sentences in {len(dataset.documents)} documents")
        if combine:
            self._mix(dataset)
        cropped = {} if cfg.stream else dataset.cropped
        for (side, count), limit in zip(cropped.items(), self.positions, strict=False):
            logger.info(
                f"{split}: {count} of {len(dataset)} windows lost {side} context to "
                f"--max-{side}-positions {limit}"
            )
        self.datasets[split] = dataset
        if cfg.stream and combine:
            self.datasets[split] = SegmentDataset(dataset, cfg.stream_sentences)

    def _mix(self, dataset: DocumentDataset) -> None:
        """Sets how often an epoch reads each part of a training set."""
        cfg, mixture = self.cfg, dataset.mixture
        sizes = np.diff(mixture.starts, append=len(dataset)).tolist()
        given = numbers_of(str(cfg.sampling_weights))
        mixture.weights = weights_of(sizes, given, cfg.sampling_temperature, cfg.upsample_primary)
        for number, weight in enumerate(mixture.weights if len(sizes) > 1 else []):
            name = f"{dataset.name}{number or ''}"
            logger.info(f"{name}: {sizes[number]} sentences, read {weight:g} times an epoch")

    def _windows(self) -> WindowOptions:
        cfg = self.cfg
        tokens = window_tokens(cfg, self.src_dict, self.tgt_dict)
        max_source, max_target = self._room(self.positions)
        return WindowOptions(
            source_token=tokens["source_token"],
            target_token=tokens["target_token"],
            source_context=cfg.source_context,
            target_context=cfg.target_context,
            max_source=max_source,
            max_target=max_target,
            source_separator=self.src_dict.index(cfg.context_separator),
            target_separator=self.tgt_dict.index(cfg.context_separator),
            pad=self.src_dict.pad(),
            eos=self.src_dict.eos(),
            left_pad_source=cfg.left_pad_source,
            loss_on_window=str(cfg.loss_on) == "window",
            last_of_documents=str(cfg.loss_on) == "last",
            as_sequences=self.takes_sequences,
            sample_context=cfg.sample_context,
            seed=cfg.seed,
        )

    def _room(self, positions: tuple[int, int]) -> tuple[int, int]:
        """The largest numbers of tokens of the sentences of a window."""
        source, target = positions
        return source - bool(self.cfg.source_token), target - bool(self.cfg.target_token)

    def build_dataset_for_inference(
        self, src_tokens: list[Tensor], src_lengths: Any, constraints: Any = None
    ) -> SentenceDataset:
        """Lines, of which an empty one ends a document.

        Raises MemAttnError for a line that holds the separator.
        """
        windows = self._windows()
        for line in src_tokens:
            self.lines_read += 1
            if bool(line.eq(windows.source_separator).any()):
                raise MemAttnError(
                    f"line {self.lines_read} of the input contains the separator "
                    f"{self.cfg.context_separator!r}; the input must have one sentence a line"
                )
        sizes = np.array([len(line) for line in src_tokens], dtype=np.int64)
        collate = WindowCollater(windows)
        given = {"name": LINES, "constraints": constraints}
        return SentenceDataset(src_tokens, None, (sizes, None), sizes, collate, **given)

    def get_batch_iterator(
        self,
        dataset: DocumentDataset | SegmentDataset | SentenceDataset,
        max_tokens: int | None = None,
        max_sentences: int | None = None,
        max_positions: Any = None,
        *,
        num_shards: int = 1,
        shard_id: int = 0,
        data_buffer_size: int = 0,
        **others: Any,
    ) -> iterators.EpochBatchIterator:
        """fairseq's batches in training; else all sentences in order, in shards of whole documents.

        Outside training it begins the session that translates the data set.
        Raises MemAttnError for a sentence that does not fit: leaving it out would lose a line.
        """
        batching = {"max_tokens": max_tokens, "max_sentences": max_sentences}
        loading = {
            name: others[name] for name in ("seed", "num_workers", "epoch") if name in others
        }
        if isinstance(dataset, SegmentDataset):
            dataset.check_sizes(max_tokens)
        if isinstance(dataset, DocumentDataset | SegmentDataset) and dataset.training:
            made = super().get_batch_iterator(
                dataset,
                **batching,
                max_positions=max_positions,
                num_shards=num_shards,
                shard_id=shard_id,
                data_buffer_size=data_buffer_size,
                **others,
            )
            return replace_batches(self.batches, dataset.name, made)
        options = SessionOptions(
            self.cfg.parallel_documents,
            self.cfg.gold_target_context,
            max_tokens,
            max_sentences,
            progress=not self.computes_loss,
            stream=self.cfg.stream,
        )
        before = self.lines_read - len(dataset) if isinstance(dataset, SentenceDataset) else 0
        check_sizes(dataset, self._room(max_positions), max_tokens, before)
        if isinstance(dataset, SentenceDataset):
            earlier = self.sessions.get(LINES)
            self.sessions[LINES] = DocumentSession.of_lines(
                dataset.source, self._windows(), options, earlier, dataset.constraints
            )
            batches = dataset.batch_by_size(dataset.ordered_indices(), **batching)
            shown = dataset
        else:
            order = dataset.documents.shard(num_shards, shard_id)
            self.sessions[dataset.name] = DocumentSession(dataset, order, options)
            if self.computes_loss:
                shown = dataset
                if self.cfg.stream:
                    shown = SegmentDataset(dataset, self.cfg.stream_sentences)
                    shown.check_sizes(max_tokens)
                batches = document_batches(shown, num_shards, shard_id, **batching)
            else:
                if num_shards > (most := len(dataset.documents)):
                    raise MemAttnError(
                        f"--num-shards must be at most the {most} documents of {dataset.name}, "
                        f"because a document is in one shard, but is {num_shards}"
                    )
                # A batch for each sentence, so that fairseq prints each as early as possible. The
                # batches that a model sees are those of `ContextGenerator`.
                batches = list(dataset.documents.all_sentences_of(order).reshape(-1, 1))
                shown = SentenceDataset.of(dataset)
        made = ShardIterator(
            dataset=shown,
            collate_fn=shown.collater,
            batch_sampler=batches,
            buffer_size=data_buffer_size,
            reuse_dataloader=True,
            **loading,
        )
        return replace_batches(self.batches, dataset.name, made)

    # Generation.

    check_generation = staticmethod(check_generation)

    def build_generator(self, models: Sequence[nn.Module], args: Any, **options: Any) -> Any:
        check_generation(args)
        aligns = getattr(args, "print_alignment", None)
        ensemble: Any = models
        if self.cfg.stream:
            for name in ("retain_dropout", "print_alignment"):
                if getattr(args, name, None):
                    raise MemAttnError(
                        f"{flag(name)} does not work with --stream, whose memories hold the writes "
                        "of earlier sentences"
                    )
            ensemble = MemoryEnsemble(models)
        elif not getattr(args, "score_reference", False):
            separator = self.tgt_dict.index(self.cfg.context_separator)
            ensemble = ContextEnsemble(models, separator, self.tgt_dict, bool(aligns))
        # Not the generator of alignments, which would take those of the context too.
        options = {"seq_gen_cls": SequenceGenerator, **options}
        generator = super().build_generator(ensemble, args, **options)
        generator.prefix_size = getattr(args, "prefix_size", 0)
        generator.print_alignment = aligns
        return generator

    def inference_step(
        self,
        generator: Any,
        models: Sequence[nn.Module],
        sample: dict[str, Any],
        prefix_tokens: Tensor | None = None,
        constraints: Any = None,
    ) -> list[Hypotheses]:
        """The hypotheses of the sentences of a batch, best first.

        A batch without ids, from fairseq-interactive, has the next lines of the conversation.
        What fairseq has printed of earlier batches is written first.
        """
        sys.stdout.flush()
        if prefix_tokens is not None and not generator.prefix_size:
            raise MemAttnError(
                "prefix_tokens must be those of the references; give build_generator prefix_size"
            )
        if "id" in sample:
            session, ids = self.sessions[sample["split"]], sample["id"]
            return session.translate(generator, models, ids.tolist(), ids.device)
        lines = sample["net_input"]["src_tokens"]
        session = self.sessions[LINES]
        return session.translate_lines(generator, models, len(lines), lines.device)

    # Training and validation.

    def train_step(self, sample: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """fairseq's train_step, with the number of sentences of `sample` in its log."""
        loss, size, output = super().train_step(sample, *args, **kwargs)
        return loss, size, output | {"nsentences": sample["nsentences"]}

    def valid_step(self, sample: dict[str, Any], model: nn.Module, criterion: nn.Module) -> Any:
        """fairseq's valid_step, with the number of sentences of `sample` in its log.

        With --eval-bleu, it translates as fairseq-generate does.
        """
        if not sample:  # fairseq-validate, in a process that has fewer batches than others
            return 0, 0, {}
        loss, size, output = super(TranslationTask, self).valid_step(sample, model, criterion)
        if self.cfg.eval_bleu:
            session = self.sessions.get(sample["split"])
            # In the place of a batch that another process validates, fairseq repeats an earlier one
            # and ignores its results.
            if session is None or session.is_past(int(sample["id"][0])):
                output |= dict.fromkeys(validation.STATISTICS, 0)
            else:
                output |= self._statistics(sample, model)
        return loss, size, output | {"nsentences": sample["nsentences"]}

    def _statistics(self, sample: dict[str, Any], model: nn.Module) -> dict[str, float]:
        """Statistics of the translations of a batch, against the references without context."""
        session = self.sessions[sample["split"]]
        found = self.inference_step(self.sequence_generator, [model], sample)
        # An unknown word of a translation does not agree with one of a reference.
        texts = {
            number: (
                self._text(hypotheses[0]["tokens"], "UNKNOWNTOKENINHYP"),
                self._text(session.dataset.reference(number), "UNKNOWNTOKENINREF"),
            )
            for number, hypotheses in zip(sample["id"].tolist(), found, strict=True)
        }
        hypotheses, references = zip(*texts.values(), strict=True)
        if self.cfg.eval_bleu_print_samples:
            logger.info(f"example hypothesis: {hypotheses[0]}")
            logger.info(f"example reference: {references[0]}")
        name = validation.tokenizer(self.cfg)
        warning = tokenizer_warning(references, name, "--eval-bleu-tokenizer")
        if warning and name not in self.warned:
            logger.warning(warning)
            self.warned.add(name)
        documents = session.end_documents(texts)
        return validation.text_statistics(self.measures, (hypotheses, references), documents)

    def _text(self, tokens: Tensor, unknown: str) -> str:
        text = self.tgt_dict.string(
            tokens.int().cpu(), self.cfg.eval_bleu_remove_bpe, unk_string=unknown
        )
        return str(self.tokenizer.decode(text))

    def reduce_metrics(self, logging_outputs: Sequence[dict[str, Any]], criterion: Any) -> None:
        super(TranslationTask, self).reduce_metrics(logging_outputs, criterion)
        if self.cfg.eval_bleu:
            validation.log_texts(self.measures, logging_outputs)


def _check(cfg: DocumentTranslationConfig) -> None:
    check_fields(cfg, DocumentTranslationConfig)
    numbers_of(str(cfg.sampling_weights))
    for name in ("max_source_positions", "max_target_positions"):
        check_least(cfg, name, 1)
    for name in ("context_separator", "source_token", "target_token"):
        symbol = getattr(cfg, name)
        if symbol.split() != [symbol] and (symbol or name == "context_separator"):
            raise MemAttnError(f"{flag(name)} must be one symbol without spaces, but is {symbol!r}")
    symbol = cfg.context_separator
    if symbol in Dictionary().symbols:
        raise MemAttnError(
            f"--context-separator must not be a symbol of every dictionary, but is {symbol!r}"
        )
    for name in ("source_token", "target_token"):
        if cfg.stream and getattr(cfg, name):
            raise MemAttnError(f"{flag(name)} does not work with --stream")
    for name in ("source_context", "target_context"):
        if cfg.stream and getattr(cfg, name):
            raise MemAttnError(
                f"{flag(name)} must be 0 with --stream, whose memory is the context, but is "
                f"{getattr(cfg, name)}"
            )
    if cfg.stream and str(cfg.loss_on) == "last":
        raise MemAttnError("--loss-on last does not work with --stream, which reads all sentences")
    for name, off in UNUSED.items():
        if getattr(cfg, name) != off:
            logger.warning(f"{flag(name)} has no effect with --task document_translation")
    if cfg.eval_bleu:
        validation.check_options(cfg)
    elif cfg.best_checkpoint_metric in validation.TEXT_MEASURES:
        metric = cfg.best_checkpoint_metric
        raise MemAttnError(f"--best-checkpoint-metric {metric} needs --eval-bleu")
    if cfg.left_pad_target:
        raise MemAttnError("--left-pad-target does not work with --task document_translation")


def window_tokens(cfg: Any, source: Dictionary, target: Dictionary) -> dict[str, int | None]:
    """The symbols before windows, as in `WindowOptions`.

    cfg: of any task; one that has no such options has no symbols
    Raises MemAttnError for a symbol that is not in its dictionary.
    """
    found: dict[str, int | None] = {}
    for name, dictionary in (("source_token", source), ("target_token", target)):
        symbol = getattr(cfg, name, "")
        if symbol and symbol not in dictionary:
            raise MemAttnError(f"{flag(name)} {symbol} is not in the dictionary")
        found[name] = dictionary.index(symbol) if symbol else None
    return found
