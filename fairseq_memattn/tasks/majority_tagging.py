"""Majority tagging, GMAT's synthetic task of global reasoning (section 3.1)."""

from dataclasses import dataclass, field
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.dataclass import FairseqDataclass
from fairseq.tasks import FairseqTask, register_task
from torch import nn

from fairseq_memattn.data.generated_dataset import GeneratedDataset
from fairseq_memattn.data.majority import SPLITS, Majority
from fairseq_memattn.errors import MemAttnError, check_fields
from fairseq_memattn.tasks.trained import check_criterion

EXAMPLES = {"least": 1, "most": 10**8}  # limits of a number of examples


@dataclass
class MajorityTaggingConfig(FairseqDataclass):
    """The flags of the task. The defaults are the paper's, except numbers that it does not give."""

    length: int = field(
        default=512, metadata={"help": "L, the number of integers in a sequence", "least": 1}
    )
    pairs: int = field(
        default=1,
        metadata={
            "help": "p, the number of pairs: the integers are 1 to 2p, and each is tagged with the "
            "more frequent one of its pair",
            "least": 1,
            "most": 100_000,
        },
    )
    train_examples: int = field(
        default=200_000,
        metadata={"help": "number of sequences in the training set"} | EXAMPLES,
    )
    valid_examples: int = field(
        default=1000, metadata={"help": "number of sequences in the validation set"} | EXAMPLES
    )
    test_examples: int = field(
        default=1000, metadata={"help": "number of sequences in the test set"} | EXAMPLES
    )
    fresh_examples: bool = field(
        default=False, metadata={"help": "draw new training sequences in every epoch"}
    )
    data_seed: int = field(
        default=1,
        metadata={"help": "seed of the sequences, which do not depend on --seed", "least": 0},
    )


@register_task("majority_tagging", dataclass=MajorityTaggingConfig)
class MajorityTaggingTask(FairseqTask):
    """Tags each integer of a random sequence with the more frequent one of its pair.

    The task reads no files: it generates the dictionary, and examples when they are needed. With
    `--criterion sequence_tagging` it takes any model that returns (logits (B, L, C), extra) for
    src_tokens (B, L), such as fairseq's roberta and its subclasses; C is the size of
    `target_dictionary`. A sequence is its L integers, without bos and eos.
    """

    cfg: MajorityTaggingConfig

    @classmethod
    def setup_task(cls, cfg: MajorityTaggingConfig, **kwargs: Any) -> "MajorityTaggingTask":
        return cls(cfg)

    def __init__(self, cfg: MajorityTaggingConfig) -> None:
        super().__init__(cfg)
        check_fields(cfg, MajorityTaggingConfig)
        self.majority = Majority(cfg.length, cfg.pairs, cfg.data_seed)
        self.dictionary = Dictionary()
        integers = [self.dictionary.add_symbol(str(i)) for i in range(1, 2 * cfg.pairs + 1)]
        self.symbols = torch.tensor([self.dictionary.unk(), *integers])

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> nn.Module:
        model = super().build_model(cfg, from_checkpoint)
        limit = model.max_positions()
        if isinstance(limit, int) and limit < self.cfg.length:
            raise MemAttnError(
                f"--length must be at most the {limit} positions of the model, but is "
                f"{self.cfg.length}; raise --max-positions"
            )
        return model

    def build_criterion(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        check_criterion(cfg, "majority_tagging", "sequence_tagging")
        return super().build_criterion(cfg, from_checkpoint)

    def load_dataset(self, split: str, combine: bool = False, **kwargs: Any) -> None:
        """Makes a split. `combine` is True for the training set, as fairseq's trainer passes it.

        Raises MemAttnError for another split than train, valid and test.
        """
        if split not in SPLITS:
            raise MemAttnError(
                f"--task majority_tagging has the splits {', '.join(SPLITS)}, but not {split!r}"
            )
        size = getattr(self.cfg, f"{split}_examples")
        fresh = self.cfg.fresh_examples and combine
        self.datasets[split] = GeneratedDataset(self.majority, split, size, self.symbols, fresh)

    def max_positions(self) -> int:
        return self.cfg.length

    @property
    def source_dictionary(self) -> Dictionary:
        return self.dictionary

    @property
    def target_dictionary(self) -> Dictionary:
        return self.dictionary
