"""Document-level translation: every sentence with its previous sentences as context."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq import utils
from fairseq.data import data_utils, iterators
from fairseq.dataclass import ChoiceEnum
from fairseq.sequence_scorer import SequenceScorer
from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from omegaconf import II
from torch import Tensor, nn

from fairseq_memattn.data.document_ids import Documents, read_docids
from fairseq_memattn.documents import validation_bleu
from fairseq_memattn.documents.context_generator import ContextEnsemble, ContextGenerator
from fairseq_memattn.documents.conversation import Conversation, documents_of_lines
from fairseq_memattn.documents.document_dataset import DocumentDataset
from fairseq_memattn.documents.document_decoder import DocumentDecoder, Hypotheses
from fairseq_memattn.documents.sentence_windows import WindowOptions
from fairseq_memattn.errors import MemAttnError, check_least, flag

logger = logging.getLogger(__name__)

LOSSES = ChoiceEnum(["window", "current"])
TYPED = ""  # the name of what is no split: lines that are typed, or come from a program


@dataclass
class DocumentTranslationConfig(TranslationConfig):
    """The flags of the task, beside those of fairseq's translation."""

    source_context: int = field(
        default=3, metadata={"help": "previous source sentences that the model sees, 0 or more"}
    )
    target_context: int = field(
        default=3,
        metadata={
            "help": "previous target sentences that the model sees, 0 or more; in generation, "
            "those that it has translated itself"
        },
    )
    context_separator: str = field(
        default="_eos",
        metadata={"help": "symbol between two sentences of a window, added where it is missing"},
    )
    loss_on: LOSSES = field(  # type: ignore[valid-type]
        default="window",
        metadata={"help": "whether the loss counts the target's whole window or the last sentence"},
    )
    sample_context: bool = field(
        default=False,
        metadata={
            "help": "train with 0 to all of the context sentences, drawn anew for each window and "
            "epoch, so that one model works with and without context"
        },
    )
    gold_target_context: bool = field(
        default=False,
        metadata={
            "help": "generate with the references of the previous sentences as target context, "
            "for analysis: no real translation has them"
        },
    )
    parallel_documents: int = field(
        default=256,
        metadata={
            "help": "documents that are translated side by side; more fill batches better, fewer "
            "show the first translations sooner"
        },
    )
    seed: int = II("common.seed")
    num_shards: int = II("dataset.num_shards")
    shard_id: int = II("dataset.shard_id")
    best_checkpoint_metric: str = II("checkpoint.best_checkpoint_metric")


@register_task("document_translation", dataclass=DocumentTranslationConfig)
class DocumentTranslationTask(TranslationTask):
    """Translates each sentence in a window with the sentences before it in its document.

    The data are fairseq-preprocess's, one sentence a line, with `{split}.{src}-{tgt}.docids`
    beside them (docs/data.md). Works with any encoder-decoder, which sees a window as one sequence
    with separators; a model with a true attribute `takes_sequences` gets the source's sentences
    as separate tensors instead.
    """

    cfg: DocumentTranslationConfig

    @classmethod
    def setup_task(cls, cfg: DocumentTranslationConfig, **kwargs: Any) -> "DocumentTranslationTask":
        _check(cfg)
        task = super().setup_task(cfg, **kwargs)
        for dictionary in (task.src_dict, task.tgt_dict):
            # Text that holds the separator itself has it in its dictionary: see `load_dataset`.
            task.separator_in_text |= cfg.context_separator in dictionary
            dictionary.add_symbol(cfg.context_separator)
        return task

    def __init__(self, cfg: DocumentTranslationConfig, src_dict: Any, tgt_dict: Any) -> None:
        super().__init__(cfg, src_dict, tgt_dict)
        self.as_sequences = False
        self.separator_in_text = False
        self._warned: set[str] = set()
        self._limits: dict[str, tuple[int | None, int | None]] = {}
        self._shards: dict[str, range] = {}
        self._decoders: dict[str, tuple[Any, DocumentDecoder]] = {}
        self._conversation = Conversation(max(cfg.source_context, cfg.target_context))

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> nn.Module:
        if from_checkpoint:
            self._warn_of_other_windows(cfg)
        model = super().build_model(cfg, from_checkpoint)
        self.as_sequences = bool(getattr(model, "takes_sequences", False))
        return model

    # Data.

    def load_dataset(
        self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any
    ) -> None:
        """Loads a split; `combine`, as fairseq's trainer has it, says that it is to train on."""
        self._warn_of_other_windows(kwargs.get("task_cfg"))
        paths = utils.split_paths(self.cfg.data)
        folder = Path(paths[(epoch - 1) % len(paths) if combine else 0])
        pair = f"{self.cfg.source_lang}-{self.cfg.target_lang}"
        sides = []
        for language, dictionary in (
            (self.cfg.source_lang, self.src_dict),
            (self.cfg.target_lang, self.tgt_dict),
        ):
            prefix = str(folder / f"{split}.{pair}.{language}")
            sides.append(data_utils.load_indexed_dataset(prefix, dictionary, self.cfg.dataset_impl))
        source, target = sides
        if combine and Path(f"{folder / split}1.{pair}.{self.cfg.source_lang}.bin").exists():
            raise MemAttnError(
                f"{folder} has {split}1 beside {split}; --task document_translation takes one "
                "training set, so join them before binarising"
            )
        if source is None:
            raise FileNotFoundError(f"Dataset not found: {split} ({folder})")
        if target is not None and len(source) != len(target):
            raise MemAttnError(
                f"split {split} in {folder} has {len(source)} {self.cfg.source_lang} sentences, "
                f"but {len(target)} {self.cfg.target_lang} ones"
            )
        if self.separator_in_text:
            for sentences, side in zip(sides, ("source", "target"), strict=True):
                self._check_separator(sentences, side, split)
        documents = read_docids(folder / f"{split}.{pair}.docids", len(source))
        sizes = (np.asarray(source.sizes), None if target is None else np.asarray(target.sizes))
        dataset = DocumentDataset(
            source, target, sizes, documents, self._options(), name=split, training=combine
        )
        logger.info(f"{split}: {len(source)} sentences in {len(documents)} documents")
        for side, count in dataset.cropped.items():
            logger.info(
                f"{split}: {count} of {len(source)} windows lost {side} context to "
                f"--max-{side}-positions {getattr(self.cfg, f'max_{side}_positions')}"
            )
        self.datasets[split] = dataset

    def _check_separator(self, sentences: Any, side: str, split: str) -> None:
        """Refuses single sentences that hold the separator, such as windows made beforehand."""
        dictionary = self.src_dict if side == "source" else self.tgt_dict
        symbol = dictionary.index(self.cfg.context_separator)
        for number in range(0 if sentences is None else len(sentences)):
            if bool(sentences[number].eq(symbol).any()):
                raise MemAttnError(
                    f"{split}, {side} sentence {number + 1}: the text already holds the separator "
                    f"{self.cfg.context_separator!r}; binarise single sentences, or choose another "
                    "--context-separator"
                )

    def _options(self) -> WindowOptions:
        cfg = self.cfg
        return WindowOptions(
            source_context=cfg.source_context,
            target_context=cfg.target_context,
            max_source=cfg.max_source_positions,
            max_target=cfg.max_target_positions,
            source_separator=self.src_dict.index(cfg.context_separator),
            target_separator=self.tgt_dict.index(cfg.context_separator),
            pad=self.src_dict.pad(),
            eos=self.src_dict.eos(),
            left_pad_source=cfg.left_pad_source,
            loss_on_window=str(cfg.loss_on) == "window",
            as_sequences=self.as_sequences,
            sample_context=cfg.sample_context,
            seed=cfg.seed,
        )

    def _warn_of_other_windows(self, trained: Any) -> None:
        for name in ("source_context", "target_context", "context_separator"):
            before, now = getattr(trained, name, None), getattr(self.cfg, name)
            if before is not None and before != now and name not in self._warned:
                logger.warning(
                    f"the model was trained with {flag(name)} {before}, but now it is {now}"
                )
                self._warned.add(name)

    def get_batch_iterator(
        self,
        dataset: DocumentDataset,
        max_tokens: int | None = None,
        max_sentences: int | None = None,
        max_positions: Any = None,
        ignore_invalid_inputs: bool = False,
        seed: int = 1,
        num_shards: int = 1,
        shard_id: int = 0,
        num_workers: int = 0,
        epoch: int = 1,
        data_buffer_size: int = 0,
        **others: Any,
    ) -> iterators.EpochBatchIterator:
        """In training fairseq's batches; else all sentences in order, shards of whole documents.

        Raises MemAttnError for a sentence that does not fit: leaving it out would lose a line.
        """
        batching = {"max_tokens": max_tokens, "max_sentences": max_sentences}
        loading = {"seed": seed, "num_workers": num_workers, "epoch": epoch}
        if dataset.training:
            return super().get_batch_iterator(
                dataset,
                **batching,
                **loading,
                max_positions=max_positions,
                ignore_invalid_inputs=ignore_invalid_inputs,
                num_shards=num_shards,
                shard_id=shard_id,
                data_buffer_size=data_buffer_size,
                **others,
            )
        _check_sizes(dataset, max_tokens, max_positions)
        if num_shards == 1:
            # fairseq-generate shards by processes alone, and reads its own flags for it nowhere.
            num_shards, shard_id = self.cfg.num_shards, self.cfg.shard_id
            if num_shards > len(dataset.documents):
                raise MemAttnError(
                    f"--num-shards {num_shards} is more than the {len(dataset.documents)} "
                    f"documents of {dataset.name}, which are not divided"
                )
        self._limits[dataset.name] = (max_tokens, max_sentences)
        shards = [dataset.documents.shard(num_shards, number) for number in range(num_shards)]
        self._shards[dataset.name] = shards[shard_id]
        batches = [
            dataset.batch_by_size(_sentences(dataset.documents, shard), **batching)
            for shard in shards
        ]
        own = list(batches[shard_id])
        # Processes that validate together wait for one another after every batch.
        own += [[]] * (max(map(len, batches)) - len(own))
        return iterators.EpochBatchIterator(
            dataset=dataset,
            collate_fn=dataset.collater,
            batch_sampler=own,
            buffer_size=data_buffer_size,
            **loading,
        )

    # Generation.

    def build_generator(
        self, models: Sequence[nn.Module], args: Any, *more: Any, **options: Any
    ) -> Any:
        self._check_generation(args)
        if getattr(args, "score_reference", False):
            return super().build_generator(models, args, *more, **options)
        separator = self.tgt_dict.index(self.cfg.context_separator)
        ensemble = ContextEnsemble(models, separator, self.tgt_dict.pad(), self.tgt_dict.eos())
        return super().build_generator(ensemble, args, *more, **options)

    def _check_generation(self, args: Any) -> None:
        for name in (
            "print_alignment",
            "replace_unk",
            "constraints",
            "match_source_len",
            "prefix_size",
        ):
            if getattr(args, name, None):
                raise MemAttnError(f"{flag(name)} does not work with --task document_translation")
        if getattr(args, "diverse_beam_groups", 0) > 1:
            raise MemAttnError(
                "--diverse-beam-groups does not work with --task document_translation"
            )
        if getattr(args, "no_repeat_ngram_size", 0) and self.cfg.target_context:
            raise MemAttnError(
                "--no-repeat-ngram-size would count the target context, too; use --target-context 0"
            )

    def inference_step(
        self,
        generator: Any,
        models: Sequence[nn.Module],
        sample: dict[str, Any],
        prefix_tokens: Tensor | None = None,
        constraints: Any = None,
    ) -> list[Hypotheses]:
        """The hypotheses of the sentences of a batch, best first.

        fairseq-generate goes on to print the batch's sources and references: this leaves in the
        batch the sentences alone, without their context.
        """
        if prefix_tokens is not None:
            raise MemAttnError("--prefix-size does not work with --task document_translation")
        source = sample["net_input"]["src_tokens"]
        if "id" not in sample:
            return self._continue_conversation(generator, models, len(source), source.device)
        sentences, dataset = sample["id"].tolist(), self.datasets[sample["split"]]
        decoder = self._decoder(dataset, generator, models, source.device)
        hypotheses = decoder.hypotheses(sentences)
        source, target = dataset.current(sentences)
        sample["net_input"]["src_tokens"] = source.to(sample["id"].device)
        sample["target"] = None if target is None else target.to(sample["id"].device)
        return hypotheses

    def _decoder(
        self,
        dataset: DocumentDataset,
        generator: Any,
        models: Sequence[nn.Module],
        device: torch.device,
        known: dict[int, Tensor] | None = None,
    ) -> DocumentDecoder:
        """The decoder of a data set, kept from batch to batch."""
        last, decoder = self._decoders.get(dataset.name, (None, None))
        if decoder is not None and last is generator:
            return decoder
        scores = isinstance(generator, SequenceScorer)
        translate = ContextGenerator(
            generator,
            models,
            dataset,
            *self._limits[dataset.name],
            device,
            references=scores or self.cfg.gold_target_context,
        )
        decoder = DocumentDecoder(
            translate,
            dataset.documents,
            self._shards[dataset.name],
            context=self.cfg.target_context,
            side_by_side=self.cfg.parallel_documents,
            known=known,
        )
        self._decoders[dataset.name] = (generator, decoder)
        return decoder

    # Text that is typed, or comes from a program.

    def build_dataset_for_inference(
        self, src_tokens: list[Tensor], src_lengths: Any, constraints: Any = None
    ) -> DocumentDataset:
        """Lines, of which an empty one ends a document.

        Raises MemAttnError for a line that holds the separator.
        """
        for number, line in enumerate(src_tokens, start=1):
            if bool(line.eq(self.src_dict.index(self.cfg.context_separator)).any()):
                raise MemAttnError(
                    f"line {number} of the input holds the separator "
                    f"{self.cfg.context_separator!r}; give single sentences, a line each"
                )
        self._decoders.pop(TYPED, None)
        self._typed = 0
        self.datasets[TYPED] = self._dataset_of(src_tokens, self._options())
        # fairseq prints the batches that it makes: the lines, without their context.
        alone = replace(self._options(), source_context=0, target_context=0)
        return self._dataset_of(src_tokens, alone)

    @staticmethod
    def _dataset_of(lines: list[Tensor], options: WindowOptions) -> DocumentDataset:
        sizes = np.array([len(line) for line in lines], dtype=np.int64)
        documents = documents_of_lines(lines)
        return DocumentDataset(lines, None, (sizes, None), documents, options, name=TYPED)

    def _continue_conversation(
        self, generator: Any, models: Sequence[nn.Module], count: int, device: torch.device
    ) -> list[Hypotheses]:
        """fairseq-interactive: batches without ids, in order; a document goes on over many."""
        talk, lines = self._conversation, self.datasets[TYPED]
        if self._typed == 0:
            self._earlier = len(talk.sources)
            known = dict(enumerate(talk.translations))
            dataset = self._dataset_of([*talk.sources, *lines.source], self._options())
            self._shards[TYPED] = range(len(dataset.documents))
            self._decoders.pop(TYPED, None)
            self._decoder(dataset, generator, models, device, known)
        numbers = range(self._typed, self._typed + count)
        _, decoder = self._decoders[TYPED]
        hypotheses = decoder.hypotheses([self._earlier + number for number in numbers])
        for number, found in zip(numbers, hypotheses, strict=True):
            talk.remember(lines.source[number], found[0]["tokens"])
        self._typed += count
        return hypotheses

    # Validation.

    def begin_valid_epoch(self, epoch: int, model: nn.Module) -> None:
        self._decoders.clear()

    def valid_step(self, sample: dict[str, Any], model: nn.Module, criterion: nn.Module) -> Any:
        """With --eval-bleu the translations are what fairseq-generate would print."""
        if self.cfg.eval_bleu and self.datasets[sample["split"]].training:
            # A stand-in, where another process validates a batch more: it counts for nothing.
            loss, size, output = super(TranslationTask, self).valid_step(sample, model, criterion)
            return loss, size, output | dict.fromkeys(validation_bleu.STATISTICS, 0)
        # `inference_step` replaces entries of the batch.
        copy = {**sample, "net_input": dict(sample["net_input"])}
        return super().valid_step(copy, model, criterion)

    def reduce_metrics(self, logging_outputs: Sequence[dict[str, Any]], criterion: Any) -> None:
        super(TranslationTask, self).reduce_metrics(logging_outputs, criterion)
        validation_bleu.log_bleu(logging_outputs)


def _check(cfg: DocumentTranslationConfig) -> None:
    for name, least in (
        ("source_context", 0),
        ("target_context", 0),
        ("parallel_documents", 1),
        ("num_shards", 1),
    ):
        check_least(cfg, name, least)
    if not 0 <= cfg.shard_id < cfg.num_shards:
        raise MemAttnError(
            f"--shard-id must be from 0 to {cfg.num_shards - 1} with --num-shards "
            f"{cfg.num_shards}, but is {cfg.shard_id}"
        )
    if cfg.context_separator.split() != [cfg.context_separator]:
        raise MemAttnError(
            "--context-separator must be one symbol without spaces, but is "
            f"{cfg.context_separator!r}"
        )
    if cfg.eval_bleu:
        validation_bleu.check_options(cfg)
    elif cfg.best_checkpoint_metric == "bleu":
        raise MemAttnError("--best-checkpoint-metric bleu needs --eval-bleu")
    if cfg.left_pad_target:
        raise MemAttnError("--left-pad-target does not work with --task document_translation")


def _check_sizes(dataset: DocumentDataset, max_tokens: int | None, max_positions: Any) -> None:
    """Refuses what fairseq would leave out: a sentence lost is a line of the output lost."""
    sizes = (dataset.source_sizes, dataset.target_sizes)
    for side, limit, lengths in zip(("source", "target"), max_positions, sizes, strict=True):
        if lengths is None:
            continue
        if lengths.max(initial=0) > limit:
            number = int(np.argmax(lengths > limit))
            raise MemAttnError(
                f"{dataset.name or 'the input'}, {side} sentence {number + 1}: {lengths[number]} "
                f"tokens are more than the {limit} of --max-{side}-positions"
            )
    windows = dataset.num_tokens_vec(np.arange(len(dataset)))
    if max_tokens and windows.max(initial=0) > max_tokens:
        number = int(np.argmax(windows))
        raise MemAttnError(
            f"{dataset.name or 'the input'}, sentence {number + 1}: its window has "
            f"{windows[number]} tokens, more than --max-tokens {max_tokens}; raise that, or lower "
            "--source-context, --target-context or --max-source-positions"
        )


def _sentences(documents: Documents, shard: range) -> np.ndarray:
    return np.array([i for number in shard for i in documents.sentences_of(number)], dtype=np.int64)
