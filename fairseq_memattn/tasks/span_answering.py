"""Reading comprehension: the answer to a question as a span of its context (GMAT, section 4.4)."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from fairseq.data import Dictionary, iterators
from fairseq.dataclass import FairseqDataclass
from fairseq.models.roberta import RobertaModel
from fairseq.tasks import register_task
from torch import nn

from fairseq_memattn.data.questions.span_finder import AnswerGatherer, read_texts
from fairseq_memattn.data.questions.spans import AROUND, QuestionShards, SpanDataset, SpanOptions
from fairseq_memattn.errors import MemAttnError, check_fields, option
from fairseq_memattn.host.correctness.workers import replace_batches
from fairseq_memattn.modules.span_head import SpanHead
from fairseq_memattn.qa.span_records import NOT_PUBLIC, read_numbers
from fairseq_memattn.tasks import validation
from fairseq_memattn.tasks.base import QuestionTask, check_criterion, told

logger = logging.getLogger(__name__)


@dataclass
class SpanAnsweringConfig(FairseqDataclass):
    """The flags of the task. The defaults are GMAT's for SQuAD (table 11)."""

    data: str = option(
        "???", "folder bin that `memattn prepare squad --spans`, or hotpotqa, writes"
    )
    window: int = option(
        384,
        "maximum number of tokens of `<s> question </s> context </s>`; the model reads a longer "
        "context in several windows",
        least=1,
    )
    stride: int = option(
        128, "number of tokens from the start of a window to that of the next", least=1
    )
    max_question: int = option(
        64,
        "maximum number of tokens of a question; a longer one loses its end, and the log counts "
        "such questions",
        least=1,
    )
    supporting_facts: bool = option(
        False, "also learn to tag the tokens of HotpotQA's supporting facts (GMAT's SF)"
    )
    question_memory: bool = option(
        False,
        "replace the first memory vectors of gmat_bert by the embeddings of the question's "
        "tokens; the other vectors stay learned",
    )
    eval_answers: bool = option(
        False,
        "answer the questions in validation and log em, f1, precision and recall in percent, the "
        "values of memattn spans",
    )


@register_task("span_answering", dataclass=SpanAnsweringConfig)
class SpanAnsweringTask(QuestionTask):
    """Finds answers in contexts, such as those of SQuAD and HotpotQA.

    The model is fairseq's roberta or a subclass, such as gmat_bert. A head for spans replaces its
    head for masked words. Use with `--criterion span_answering`.
    """

    writer = "memattn prepare squad --spans"
    cfg: SpanAnsweringConfig

    @classmethod
    def setup_task(cls, cfg: SpanAnsweringConfig, **kwargs: Any) -> "SpanAnsweringTask":
        check_fields(cfg, SpanAnsweringConfig)
        if cfg.window <= cfg.max_question + AROUND:
            raise MemAttnError(
                f"--window must be more than --max-question {cfg.max_question} and the {AROUND} "
                f"symbols around it, but is {cfg.window}"
            )
        if cfg.stride > cfg.window:
            raise MemAttnError(
                f"--stride must be at most --window {cfg.window}, but is {cfg.stride}"
            )
        dictionary = cls.question_dictionary(cfg)
        dictionary.add_symbol("<mask>")  # as fairseq's masked_lm does, whose models this finetunes
        logger.info(f"dictionary: {len(dictionary)} types")
        return cls(cfg, dictionary)

    def __init__(self, cfg: SpanAnsweringConfig, dictionary: Dictionary) -> None:
        super().__init__(cfg)
        self.dictionary = dictionary
        self.options = SpanOptions(
            cfg.window,
            cfg.stride,
            cfg.max_question,
            dictionary.bos(),
            dictionary.eos(),
            dictionary.pad(),
            cfg.question_memory,
        )
        self.gatherers: dict[str, AnswerGatherer] = {}
        self.batches: dict[str, iterators.EpochBatchIterator] = {}  # of validations

    def max_positions(self) -> int:
        return self.cfg.window

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> nn.Module:
        """Raises MemAttnError for a model that does not work with the task or with these flags."""
        model = super().build_model(cfg, from_checkpoint)
        if not isinstance(model, RobertaModel):
            raise MemAttnError(
                "--task span_answering needs a masked language model, such as --arch gmat_bert or "
                "roberta"
            )
        if model.max_positions() < self.cfg.window:
            raise MemAttnError(
                f"--window must be at most the {model.max_positions()} positions of the model, but "
                f"is {self.cfg.window}; raise --max-positions"
            )
        if self.cfg.question_memory and not getattr(model, "takes_memory_words", False):
            raise MemAttnError(
                "--question-memory needs a model with a memory, but this --arch with these flags "
                "has none"
            )
        embed_dim = model.encoder.sentence_encoder.embed_tokens.embedding_dim
        head = SpanHead(embed_dim, self.cfg.supporting_facts)
        model.set_submodule("encoder.lm_head", head)
        return model

    def build_criterion(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        check_criterion(cfg, "span_answering", "span_answering")
        return super().build_criterion(cfg, from_checkpoint)

    def load_dataset(
        self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any
    ) -> None:
        """Loads a split. `combine` is True for the training set, as fairseq's trainer passes it.

        Raises FileNotFoundError for a split that does not exist, and MemAttnError for parts that
        are missing or do not fit together.
        """
        folder = self.folder(epoch, combine)
        questions, contexts = self.texts(folder, split, "question", "context")
        tokens = int(contexts.sizes.sum()) - len(contexts)
        answers = told(read_numbers, folder, "answers", split, 2 * len(questions))
        tags = None
        if self.cfg.supporting_facts:
            tags = told(read_numbers, folder, "tags", split, tokens)
            if combine and not tags.any():
                raise MemAttnError(
                    f"--supporting-facts: no context of {split} has supporting facts"
                )
        dataset = SpanDataset(
            questions,
            contexts,
            None if (answers == NOT_PUBLIC).any() else answers.reshape(-1, 2),
            tags,
            self.options,
            name=split,
            training=combine,
        )
        logger.info(f"{split}: {len(questions)} questions in {len(dataset)} windows")
        logger.info(
            f"{split}: {dataset.cut} of {len(questions)} questions lost their end to "
            f"--max-question {self.cfg.max_question}"
        )
        self.datasets[split] = dataset
        self.gatherers.pop(split, None)
        if self.cfg.eval_answers and not combine:
            if dataset.answers is None:
                raise MemAttnError(f"--eval-answers: the answers of {split} are not public")
            self.gatherers[split] = AnswerGatherer(told(read_texts, dataset, folder, split))

    def get_batch_iterator(
        self, dataset: SpanDataset, *args: Any, **kwargs: Any
    ) -> iterators.EpochBatchIterator:
        """fairseq's batches; outside training all windows, without a required multiple."""
        if dataset.training:
            return super().get_batch_iterator(dataset, *args, **kwargs)
        kwargs["required_batch_size_multiple"] = 1
        # fairseq would keep the iterator, and its workers, of every validation.
        kwargs["disable_iterator_cache"] = True
        shown = QuestionShards(dataset, kwargs.get("num_shards", 1))
        made = super().get_batch_iterator(shown, *args, **kwargs)
        return replace_batches(self.batches, dataset.name, made)

    def build_generator(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise MemAttnError("--task span_answering generates no text; use `memattn spans`")

    # Validation.

    def begin_valid_epoch(self, epoch: int, model: nn.Module) -> None:
        super().begin_valid_epoch(epoch, model)
        for gatherer in self.gatherers.values():
            gatherer.forget()

    def valid_step(self, sample: dict[str, Any], model: nn.Module, criterion: nn.Module) -> Any:
        """fairseq's valid_step. An answer counts in the batch with the last window of its question.

        Raises MemAttnError with --eval-answers for a split that was loaded for training.
        """
        if not sample:  # fairseq-validate, on a worker that has fewer batches than others
            return 0, 0, {}
        gatherer = self.gatherers.get(sample["split"])
        if self.cfg.eval_answers and gatherer is None:
            raise MemAttnError(
                f"--eval-answers cannot answer {sample['split']}, which was loaded for training"
            )
        loss, size, output = super().valid_step(sample, model, criterion)
        if gatherer:
            said = gatherer.take(model, sample)
            asked = [gatherer.texts.records[number] for number in said]
            output |= validation.statistics([*said.values()], asked)
        return loss, size, output

    def reduce_metrics(self, logging_outputs: Sequence[dict[str, Any]], criterion: Any) -> None:
        super().reduce_metrics(logging_outputs, criterion)
        validation.log_scores(logging_outputs)
