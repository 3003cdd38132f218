"""Majority tagging, GMAT's synthetic task of global reasoning (section 3.1)."""

from dataclasses import dataclass, field
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.dataclass import FairseqDataclass
from fairseq.tasks import FairseqTask, register_task
from torch import nn

from fairseq_memattn.data.majority import SPLITS, Majority
from fairseq_memattn.data.majority_dataset import MajorityDataset
from fairseq_memattn.errors import MemAttnError, check_least


@dataclass
class MajorityTaggingConfig(FairseqDataclass):
    """The flags of the task. The defaults are the paper's, but for the sizes it does not give."""

    length: int = field(default=512, metadata={"help": "L, the integers of a sequence"})
    pairs: int = field(
        default=1,
        metadata={"help": "p: the integers are 1 to 2p, each tagged with the majority of its pair"},
    )
    train_examples: int = field(default=200_000, metadata={"help": "sequences to train on"})
    valid_examples: int = field(default=1000, metadata={"help": "sequences to validate on"})
    test_examples: int = field(default=1000, metadata={"help": "sequences to test on"})
    fresh_examples: bool = field(
        default=False,
        metadata={"help": "train on other sequences in every epoch, instead of the same again"},
    )
    data_seed: int = field(
        default=1,
        metadata={"help": "of the sequences; --seed leaves them as they are"},
    )


@register_task("majority_tagging", dataclass=MajorityTaggingConfig)
class MajorityTaggingTask(FairseqTask):
    """Tags each integer of a random sequence with the more frequent one of its pair.

    No files: examples are made when they are needed, and the dictionary too. With `--criterion
    sequence_tagging` it takes any model that returns (logits (B, L, C), extra) for src_tokens
    (B, L), where C is the size of `target_dictionary`: fairseq's roberta and what derives from it.
    A sequence is its L integers, without marks of beginning and end.
    """

    cfg: MajorityTaggingConfig

    @classmethod
    def setup_task(cls, cfg: MajorityTaggingConfig, **kwargs: Any) -> "MajorityTaggingTask":
        return cls(cfg)

    def __init__(self, cfg: MajorityTaggingConfig) -> None:
        super().__init__(cfg)
        _check(cfg)
        self.majority = Majority(cfg.length, cfg.pairs, cfg.data_seed)
        self.dictionary = Dictionary()
        integers = [self.dictionary.add_symbol(str(i)) for i in range(1, 2 * cfg.pairs + 1)]
        self.symbols = torch.tensor([self.dictionary.unk(), *integers])

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> nn.Module:
        model = super().build_model(cfg, from_checkpoint)
        limit = model.max_positions()
        if isinstance(limit, int) and limit < self.cfg.length:
            raise MemAttnError(
                f"--length {self.cfg.length} is more than the {limit} positions of the model; "
                "raise --max-positions"
            )
        return model

    def load_dataset(self, split: str, combine: bool = False, **kwargs: Any) -> None:
        """Makes a split; `combine`, as fairseq's trainer has it, says that it is to train on."""
        if split not in SPLITS:
            raise MemAttnError(
                f"--task majority_tagging has the splits {', '.join(SPLITS)}, but not {split!r}"
            )
        size = getattr(self.cfg, f"{split}_examples")
        fresh = self.cfg.fresh_examples and combine
        self.datasets[split] = MajorityDataset(self.majority, split, size, self.symbols, fresh)

    def max_positions(self) -> int:
        return self.cfg.length

    @property
    def source_dictionary(self) -> Dictionary:
        return self.dictionary

    @property
    def target_dictionary(self) -> Dictionary:
        return self.dictionary


def _check(cfg: MajorityTaggingConfig) -> None:
    """Refuses options that cannot be."""
    for name in ("length", "pairs", *(f"{split}_examples" for split in SPLITS)):
        check_least(cfg, name, 1)
    check_least(cfg, "data_seed", 0)
