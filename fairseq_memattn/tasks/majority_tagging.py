"""Majority tagging, GMAT's synthetic task of global reasoning (section 3.1)."""

from dataclasses import dataclass
from typing import Any, NoReturn

from fairseq.dataclass import FairseqDataclass
from fairseq.tasks import register_task

from fairseq_memattn.data.majority import Majority
from fairseq_memattn.errors import MemAttnError, check_fields, option
from fairseq_memattn.tasks.generated_task import EXAMPLES, GeneratedTask, dictionary_of


@dataclass
class MajorityTaggingConfig(FairseqDataclass):
    """The flags of the task. The defaults are the paper's, except numbers that it does not give."""

    length: int = option(512, "L, the number of integers in a sequence", least=1)
    pairs: int = option(
        1,
        "p, the number of pairs: the integers are 1 to 2p, and each is tagged with the more "
        "frequent one of its pair",
        least=1,
        most=100_000,
    )
    train_examples: int = option(200_000, "number of sequences in the training set", **EXAMPLES)
    valid_examples: int = option(1000, "number of sequences in the validation set", **EXAMPLES)
    test_examples: int = option(1000, "number of sequences in the test set", **EXAMPLES)
    fresh_examples: bool = option(False, "draw new training sequences in every epoch")
    data_seed: int = option(1, "seed of the sequences, which do not depend on --seed", least=0)


@register_task("majority_tagging", dataclass=MajorityTaggingConfig)
class MajorityTaggingTask(GeneratedTask):
    """Tags each integer of a random sequence with the more frequent one of its pair.

    With `--criterion sequence_tagging` it takes any model that returns (logits (B, L, C), extra)
    for src_tokens (B, L), such as fairseq's roberta and its subclasses; C is the size of
    `target_dictionary`. A sequence is its L integers, without bos and eos.
    """

    name = "majority_tagging"
    positions_flag = "--max-positions"
    cfg: MajorityTaggingConfig

    def __init__(self, cfg: MajorityTaggingConfig) -> None:
        super().__init__(cfg)
        check_fields(cfg, MajorityTaggingConfig)
        self.examples = Majority(cfg.length, cfg.pairs, cfg.data_seed)
        integers = map(str, range(1, 2 * cfg.pairs + 1))
        self.dictionary, self.symbols = dictionary_of(integers, "unk")

    def build_generator(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise MemAttnError(
            "--task majority_tagging generates no text; fairseq-validate computes exact match"
        )

    def fresh(self, training: bool) -> bool:
        return training and self.cfg.fresh_examples
