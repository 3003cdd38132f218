"""Question answering as sequence to sequence: a question and its context in, the answer out."""

import logging
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fairseq.data import Dictionary
from fairseq.dataclass import FairseqDataclass
from fairseq.tasks import register_task
from torch import nn

from fairseq_memattn.data.corrupted_spans import MOST_SENTINELS, add_sentinels
from fairseq_memattn.data.questions.dataset import QuestionDataset, QuestionOptions
from fairseq_memattn.errors import MemAttnError, check_fields, flag, option
from fairseq_memattn.pieces import WORD_BEGIN, join_pieces
from fairseq_memattn.qa.question_sets import read_records
from fairseq_memattn.tasks import validation
from fairseq_memattn.tasks.base import ChunkedTask, QuestionTask, told, warn_of_others

logger = logging.getLogger(__name__)


@dataclass
class QuestionAnsweringConfig(FairseqDataclass):
    data: str = option(
        "???",
        "folder bin that `memattn prepare squad` or `memattn prepare hotpotqa` writes; training "
        "reads several, separated by colons, in turn, one each epoch",
    )
    max_source_length: int = option(
        512,
        "maximum number of tokens of `question </s> context </s>` in all chunks together, with "
        "those that are repeated; a longer context loses its end, and the log counts such "
        "contexts",
        least=2,
    )
    chunks: int = option(
        1, "number of sequences of equal length that the source is cut into", least=1
    )
    chunk_overlap: int = option(
        0,
        "number of tokens at the end of a chunk with which the next one begins; a sentence of up "
        "to one token more is whole in some chunk",
        least=0,
    )
    repeat_question: bool = option(
        False, "begin every chunk with the question; by default the first chunk alone has it"
    )
    max_target_length: int = option(
        40,
        "maximum number of tokens of `answer </s>` in training; a longer answer loses its end, "
        "and the log counts such answers",
        least=1,
    )
    sentinels: int = option(
        0,
        "number of symbols <extra_id_0>, <extra_id_1>, ..., added to the end of a dictionary "
        "without them; give the number of a model pretrained by span corruption",
        least=0,
        most=MOST_SENTINELS,
    )
    eval_answers: bool = option(
        False,
        "answer the questions in validation by greedy search and log em, f1, precision and recall "
        "in percent",
    )


@register_task("question_answering", dataclass=QuestionAnsweringConfig)
class QuestionAnsweringTask(ChunkedTask, QuestionTask):
    """Answers questions about contexts, such as those of SQuAD and HotpotQA.

    Any encoder-decoder works. With --chunks above 1, the model must have a true attribute
    `takes_sequences`; it gets the last chunk as src_tokens and those before as context_tokens.
    """

    cfg: QuestionAnsweringConfig

    @classmethod
    def setup_task(cls, cfg: QuestionAnsweringConfig, **kwargs: Any) -> "QuestionAnsweringTask":
        check_fields(cfg, QuestionAnsweringConfig)
        if cfg.max_source_length % cfg.chunks:
            raise MemAttnError(
                f"--max-source-length must be a multiple of --chunks {cfg.chunks}, but is "
                f"{cfg.max_source_length}"
            )
        if cfg.chunks == 1:
            for name in ("chunk_overlap", "repeat_question"):
                if getattr(cfg, name):
                    raise MemAttnError(f"{flag(name)} needs --chunks above 1")
        elif cfg.chunk_overlap >= (length := cfg.max_source_length // cfg.chunks):
            raise MemAttnError(
                f"--chunk-overlap must be less than the {length} tokens of a chunk, but is "
                f"{cfg.chunk_overlap}"
            )
        dictionary = cls.question_dictionary(cfg)
        add_sentinels(dictionary, cfg.sentinels)
        logger.info(f"dictionary: {len(dictionary)} types")
        return cls(cfg, dictionary)

    def __init__(self, cfg: QuestionAnsweringConfig, dictionary: Dictionary) -> None:
        super().__init__(cfg)
        self.dictionary = dictionary
        self.options = QuestionOptions(
            cfg.max_source_length,
            cfg.chunks,
            cfg.max_target_length,
            dictionary.pad(),
            dictionary.eos(),
            chunk_overlap=cfg.chunk_overlap,
            repeat_question=cfg.repeat_question,
        )
        self.split = self.options.split

    def max_positions(self) -> tuple[int, int]:
        return self.options.chunking.length, self.options.max_target

    def needed(self) -> list[tuple[int, str]]:
        flags = ("--max-source-length", "--max-target-length")
        return list(zip(self.max_positions(), flags, strict=True))

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> nn.Module:
        """Raises MemAttnError for a model that cannot read inputs of these lengths and chunks."""
        trained = getattr(cfg, "sentinels", None)
        if from_checkpoint and trained not in (None, self.cfg.sentinels):
            raise MemAttnError(
                f"the model was trained with --sentinels {trained}, but now it is "
                f"{self.cfg.sentinels}"
            )
        model = super().build_model(cfg, from_checkpoint)
        if self.cfg.eval_answers:
            search = Namespace(beam=1, max_len_a=0, max_len_b=self.cfg.max_target_length)
            self.generator = self.build_generator([model], search)
        return model

    # Data.

    def load_dataset(
        self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any
    ) -> None:
        """Loads a split. `combine` is True for the training set, as fairseq's trainer passes it.

        Raises FileNotFoundError for a split that does not exist, and MemAttnError for parts of
        different lengths and for the errors of the data set.
        """
        later = {"chunk_overlap": 0, "repeat_question": False}
        names = ("max_source_length", "chunks")
        warn_of_others(kwargs.get("task_cfg"), self.cfg, names, later)
        folder = self.folder(epoch, combine)
        questions, contexts, answers = self.texts(folder, split, "question", "context", "answer")
        listed = folder / "records" / f"{split}.jsonl"
        if not listed.is_file():
            raise MemAttnError(
                f"{listed}: there is no such file; `memattn prepare squad` writes it"
            )
        records = told(read_records, listed)
        for part, found in (("context", contexts), ("answer", answers), ("records", records)):
            if found is not None and len(found) != len(questions):
                raise MemAttnError(
                    f"split {split} in {folder} has {len(questions)} questions, but {part} has "
                    f"{len(found)} entries"
                )
        dataset = QuestionDataset(
            questions, contexts, answers, records, self.options, name=split, training=combine
        )
        logger.info(f"{split}: {len(dataset)} questions")
        flags = {"contexts": "--max-source-length", "answers": "--max-target-length"}
        limits = {"contexts": self.options.max_source, "answers": self.options.max_target}
        for part, count in dataset.cut.items():
            logger.info(
                f"{split}: {count} of {len(dataset)} {part} lost their end to {flags[part]} "
                f"{limits[part]}"
            )
        self.datasets[split] = dataset

    def build_dataset_for_inference(self, *args: Any, **kwargs: Any) -> Any:
        raise MemAttnError(
            "--task question_answering reads questions and contexts that are prepared in a folder; "
            "use fairseq-generate instead of fairseq-interactive"
        )

    # Validation.

    def valid_step(self, sample: dict[str, Any], model: nn.Module, criterion: nn.Module) -> Any:
        loss, size, output = super().valid_step(sample, model, criterion)
        if self.cfg.eval_answers:
            found = self.inference_step(self.generator, [model], sample)
            pieces = [self.dictionary.string(one[0]["tokens"].int().cpu()) for one in found]
            records = self.datasets[sample["split"]].records
            asked = [records[number] for number in sample["id"].tolist()]
            output |= validation.statistics(self._texts(pieces), asked)
        return loss, size, output

    def _texts(self, answers: Sequence[str]) -> list[str]:
        """Answers without pieces, whatever the batch: `19 98` is 1998 if the data are in pieces."""
        if not any(WORD_BEGIN in symbol for symbol in self.dictionary.symbols):
            return list(answers)
        return [join_pieces(answer) for answer in answers]

    def reduce_metrics(self, logging_outputs: Sequence[dict[str, Any]], criterion: Any) -> None:
        super().reduce_metrics(logging_outputs, criterion)
        validation.log_scores(logging_outputs)
