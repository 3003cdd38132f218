"""What several tasks have in common: a dictionary, folders, chunks, and options that must fit."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from fairseq import utils
from fairseq.data import Dictionary, data_utils, iterators
from fairseq.tasks import FairseqTask
from torch import Tensor, nn

from fairseq_memattn.data.chunks import UnchunkedInputs, chunk_inputs
from fairseq_memattn.errors import MemAttnError, flag


def told(reader: Callable[..., Any], *args: Any) -> Any:
    """Calls a reader of files, whose ValueErrors become MemAttnErrors."""
    try:
        return reader(*args)
    except ValueError as error:
        raise MemAttnError(str(error)) from None


class OneDictionaryTask(FairseqTask):
    """A task with one dictionary for source and target."""

    dictionary: Dictionary

    @property
    def source_dictionary(self) -> Dictionary:
        return self.dictionary

    @property
    def target_dictionary(self) -> Dictionary:
        return self.dictionary

    def folder(self, epoch: int, combine: bool) -> Path:
        """The folder of --data for an epoch of training (`combine`), or the first one."""
        paths = utils.split_paths(self.cfg.data)
        return Path(paths[(epoch - 1) % len(paths) if combine else 0])


class QuestionTask(OneDictionaryTask):
    """A task that reads what `memattn prepare squad` writes.

    writer: the command that writes its folders
    """

    writer: ClassVar[str] = "memattn prepare squad"

    @classmethod
    def question_dictionary(cls, cfg: Any) -> Dictionary:
        path = Path(utils.split_paths(cfg.data)[0]) / "question" / "dict.txt"
        if not path.is_file():
            raise MemAttnError(f"{path}: there is no such file; `{cls.writer}` writes it")
        return cls.load_dictionary(str(path))

    def texts(self, folder: Path, split: str, *parts: str) -> list[Any]:
        """The texts of the parts of a split, None for one that is missing.

        Raises FileNotFoundError without the first two, questions and contexts.
        """
        found = [
            data_utils.load_indexed_dataset(str(folder / part / split), self.dictionary)
            for part in parts
        ]
        if any(one is None for one in found[:2]):
            raise FileNotFoundError(f"Dataset not found: {split} ({folder})")
        return found


class ChunkedTask(OneDictionaryTask):
    """A task whose inputs are cut into --chunks sequences. A subclass has `split`.

    split: returns the chunks of an input (S,)
    """

    split: Callable[[Tensor], list[Tensor]]
    computes_loss = False

    def needed(self) -> list[tuple[int, str]]:
        """The tokens of the longest source sequence and of the longest target, and their flags."""
        raise NotImplementedError

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> nn.Module:
        """Raises MemAttnError for a model that cannot read inputs of these lengths and chunks."""
        model = super().build_model(cfg, from_checkpoint)
        chunks = self.cfg.chunks
        if chunks > 1 and not getattr(model, "takes_sequences", False):
            raise MemAttnError(
                f"--chunks {chunks} needs a model that takes several sequences, such as t5mem_v4, "
                f"but {type(model).__name__} takes one"
            )
        if chunks > 1 and chunks > (most := model.max_sequences()):
            raise MemAttnError(
                f"--chunks must be at most --t5mem-sequences {most}, but is {chunks}"
            )
        sides = zip(("source", "target"), self.needed(), model.max_positions(), strict=True)
        for side, (length, flags), limit in sides:
            if limit is not None and limit < length:
                raise MemAttnError(
                    f"--max-{side}-positions must be at least the {length} tokens that {flags} "
                    f"leads to, but is {limit}"
                )
        return model

    def build_criterion(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """Commands with a criterion read chunked inputs; fairseq-generate reads whole inputs."""
        self.computes_loss = True
        return super().build_criterion(cfg, from_checkpoint)

    def get_batch_iterator(
        self, dataset: Any, *args: Any, **kwargs: Any
    ) -> iterators.EpochBatchIterator:
        """fairseq's batches; outside training all examples, without a required multiple."""
        if not dataset.training:
            kwargs["required_batch_size_multiple"] = 1
        whole = not (self.computes_loss or dataset.training)
        shown = UnchunkedInputs(dataset) if whole else dataset
        return super().get_batch_iterator(shown, *args, **kwargs)

    def inference_step(
        self,
        generator: Any,
        models: Sequence[nn.Module],
        sample: dict[str, Any],
        *args: Any,
        **options: Any,
    ) -> Any:
        """The hypotheses of a batch of whole or chunked inputs, best first."""
        sample = chunk_inputs(sample, self.split, self.dictionary.pad())
        return super().inference_step(generator, models, sample, *args, **options)


logger = logging.getLogger(__name__)


def other_options(
    trained: Any, now: Any, names: Iterable[str], later: Mapping[str, Any] | None = None
) -> dict[str, str]:
    """A message for each option whose value differs from training, by name.

    trained: the options of training, without those that are not known; now: those of this command
    later: options that did not exist in all versions, and what these did
    """
    messages = {}
    past = dict(later or {}) if trained is not None else {}
    for name in [*names, *(later or {})]:
        before, after = getattr(trained, name, past.get(name)), getattr(now, name)
        if before is not None and before != after:
            messages[name] = (
                f"the model was trained with {flag(name)} {before}, but now it is {after}"
            )
    return messages


def warn_of_others(
    trained: Any, now: Any, names: Iterable[str], later: Mapping[str, Any] | None = None
) -> None:
    """Logs the messages of `other_options`."""
    for message in other_options(trained, now, names, later).values():
        logger.warning(message)


def check_criterion(cfg: Any, task: str, needed: str) -> None:
    """Raises MemAttnError for another criterion than the one that the task needs.

    cfg: the options of the criterion, as fairseq passes them to `build_criterion`
    """
    name = getattr(cfg, "_name", None) or getattr(cfg, "criterion", None)
    if name != needed:
        raise MemAttnError(f"--task {task} needs --criterion {needed}, but it is {name}")
