"""What the tasks whose examples are generated have in common."""

from collections.abc import Iterable
from typing import Any, ClassVar, Self

import torch
from fairseq.data import Dictionary
from torch import Tensor, nn

from fairseq_memattn.data.generated_dataset import SPLITS, Examples, GeneratedDataset
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.tasks.base import OneDictionaryTask, check_criterion

EXAMPLES = {"least": 1, "most": 10**8}  # limits of a number of examples


class GeneratedTask(OneDictionaryTask):
    """A task that reads no files: it generates the dictionary, and examples when they are needed.

    A subclass sets `name` and `positions_flag` (the flag of the model's positions), and in its
    __init__ `examples`, `dictionary` and `symbols` (the dictionary's index of each symbol). Its
    configuration has `length` and for each split SPLIT_examples.
    """

    name: ClassVar[str]
    positions_flag: ClassVar[str]
    examples: Examples
    symbols: Tensor

    @classmethod
    def setup_task(cls, cfg: Any, **kwargs: Any) -> Self:
        return cls(cfg)

    def fresh(self, training: bool) -> bool:
        """Whether each epoch of a split has different examples. training: of the training set"""
        return training

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> nn.Module:
        model = super().build_model(cfg, from_checkpoint)
        limit = model.max_positions()
        if isinstance(limit, int) and limit < self.cfg.length:
            raise MemAttnError(
                f"--length must be at most the {limit} positions of the model, but is "
                f"{self.cfg.length}; raise {self._limiting_flags(cfg, limit)}"
            )
        return model

    def _limiting_flags(self, cfg: Any, limit: int) -> str:
        """The flag of the positions, or those of a layer's control that covers fewer."""
        name = self.positions_flag.removeprefix("--").replace("-", "_")
        positions = getattr(cfg, name, None) or getattr(self.cfg, name, None)
        if positions is None or positions <= limit:
            return self.positions_flag
        return (
            "--abc-max-length, --abc-stride or the slots of the control that covers fewest tokens"
        )

    def build_criterion(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        check_criterion(cfg, self.name, "sequence_tagging")
        return super().build_criterion(cfg, from_checkpoint)

    def load_dataset(self, split: str, combine: bool = False, **kwargs: Any) -> None:
        """Makes a split. `combine` is True for the training set, as fairseq's trainer passes it.

        Raises MemAttnError for another split than train, valid and test.
        """
        if split not in SPLITS:
            raise MemAttnError(
                f"--task {self.name} has the splits {', '.join(SPLITS)}, but not {split!r}"
            )
        size = getattr(self.cfg, f"{split}_examples")
        self.datasets[split] = GeneratedDataset(
            self.examples, split, size, self.symbols, self.fresh(combine)
        )

    def max_positions(self) -> int:
        return self.cfg.length


def dictionary_of(symbols: Iterable[str], untargeted: str) -> tuple[Dictionary, Tensor]:
    """A dictionary of the symbols, and their indices after that of `untargeted` (pad or unk)."""
    dictionary = Dictionary()
    first = getattr(dictionary, untargeted)()
    indices = [dictionary.add_symbol(symbol) for symbol in symbols]
    return dictionary, torch.tensor([first, *indices])
