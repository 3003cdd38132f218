"""Associative recall: how much of a text does a state of constant size hold?"""

from dataclasses import dataclass, field
from typing import Any, Optional

import torch
from fairseq.data import Dictionary
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.tasks import FairseqTask, register_task
from omegaconf import II
from torch import nn

from fairseq_memattn.data.generated_dataset import GeneratedDataset
from fairseq_memattn.data.recall import FORMS, SPLITS
from fairseq_memattn.errors import MemAttnError, check_fields
from fairseq_memattn.tasks.trained import check_criterion

EXAMPLES = {"least": 1, "most": 10**8}  # limits of a number of examples
SYMBOLS = {"least": 1, "most": 10**6}  # limits of a number of symbols
FORM = ChoiceEnum(list(FORMS))


@dataclass
class AssociativeRecallConfig(FairseqDataclass):
    """The flags of the task."""

    form: FORM = field(  # type: ignore[valid-type]
        default="multi_query",
        metadata={
            "help": "multi_query: all pairs of a key and a value, then queries at random places of "
            "noise; needle: pairs at random places of noise, then all queries"
        },
    )
    length: int = field(
        default=64, metadata={"help": "number of symbols of a sequence", "least": 1}
    )
    pairs: int = field(
        default=8, metadata={"help": "pairs of a key and a value in a sequence", "least": 1}
    )
    least_pairs: int = field(
        default=1,
        metadata={
            "help": "training sequences have a random number of pairs from this to --pairs, "
            "because models learn to recall from few pairs first; valid and test have --pairs",
            "least": 1,
        },
    )
    queries: Optional[int] = field(  # noqa: UP045 (fairseq reads no other form)
        default=None,
        metadata={"help": "keys whose value is asked (default: all pairs)", "least": 1},
    )
    key_symbols: int = field(
        default=64,
        metadata={"help": "number of different keys, from which each sequence draws"} | SYMBOLS,
    )
    value_symbols: int = field(
        default=64, metadata={"help": "number of different values"} | SYMBOLS
    )
    noise_symbols: int = field(
        default=64, metadata={"help": "number of symbols of noise"} | SYMBOLS
    )
    train_examples: int = field(
        default=100_000, metadata={"help": "number of sequences in an epoch"} | EXAMPLES
    )
    valid_examples: int = field(
        default=1000, metadata={"help": "number of sequences in the validation set"} | EXAMPLES
    )
    test_examples: int = field(
        default=1000, metadata={"help": "number of sequences in the test set"} | EXAMPLES
    )
    data_seed: int = field(
        default=1,
        metadata={"help": "seed of the sequences, which do not depend on --seed", "least": 0},
    )
    max_target_positions: int = field(
        default=4096, metadata={"help": "positions of a language model", "least": 1}
    )
    # What fairseq's transformer_lm reads of its task besides.
    tokens_per_sample: int = II("task.length")
    add_bos_token: bool = II("common.tpu")


@register_task("associative_recall", dataclass=AssociativeRecallConfig)
class AssociativeRecallTask(FairseqTask):
    """Predicts the value of each key that is asked, in a sequence that states the values before.

    The task reads no files: it generates the dictionary, and examples when they are needed. Every
    epoch has new training examples. With `--criterion sequence_tagging` it takes any model that
    returns (logits (B, L, C), extra) for src_tokens (B, L), such as fairseq's transformer_lm and
    the plugin's language models; C is the size of `target_dictionary`. Only queries have targets.
    """

    cfg: AssociativeRecallConfig

    @classmethod
    def setup_task(cls, cfg: AssociativeRecallConfig, **kwargs: Any) -> "AssociativeRecallTask":
        return cls(cfg)

    def __init__(self, cfg: AssociativeRecallConfig) -> None:
        super().__init__(cfg)
        check_fields(cfg, AssociativeRecallConfig)
        queries = cfg.pairs if cfg.queries is None else cfg.queries
        self.recall = FORMS[str(cfg.form)](
            length=cfg.length,
            pairs=cfg.pairs,
            queries=queries,
            keys=cfg.key_symbols,
            values=cfg.value_symbols,
            noise=cfg.noise_symbols,
            least_pairs=cfg.least_pairs,
            seed=cfg.data_seed,
        )
        self.dictionary = Dictionary()
        added = [self.dictionary.add_symbol(name) for name in self.recall.symbols]
        self.symbols = torch.tensor([self.dictionary.pad(), *added])

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> nn.Module:
        model = super().build_model(cfg, from_checkpoint)
        limit = model.max_positions()
        if isinstance(limit, int) and limit < self.cfg.length:
            raise MemAttnError(
                f"--length must be at most the {limit} positions of the model, but is "
                f"{self.cfg.length}; raise --max-target-positions"
            )
        return model

    def build_criterion(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        check_criterion(cfg, "associative_recall", "sequence_tagging")
        return super().build_criterion(cfg, from_checkpoint)

    def load_dataset(self, split: str, combine: bool = False, **kwargs: Any) -> None:
        """Makes a split. `combine` is True for the training set, as fairseq's trainer passes it.

        Raises MemAttnError for another split than train, valid and test.
        """
        if split not in SPLITS:
            raise MemAttnError(
                f"--task associative_recall has the splits {', '.join(SPLITS)}, but not {split!r}"
            )
        size = getattr(self.cfg, f"{split}_examples")
        self.datasets[split] = GeneratedDataset(self.recall, split, size, self.symbols, combine)

    def max_positions(self) -> int:
        return self.cfg.length

    @property
    def source_dictionary(self) -> Dictionary:
        return self.dictionary

    @property
    def target_dictionary(self) -> Dictionary:
        return self.dictionary
