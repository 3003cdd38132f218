"""Associative recall: how much of a text does a state of constant size hold?"""

from dataclasses import dataclass
from typing import Optional

from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.tasks import register_task
from omegaconf import II

from fairseq_memattn.data.recall import FORMS
from fairseq_memattn.errors import check_fields, option
from fairseq_memattn.tasks.generated_task import EXAMPLES, GeneratedTask, dictionary_of

SYMBOLS = {"least": 1, "most": 10**6}  # limits of a number of symbols
FORM = ChoiceEnum(list(FORMS))


@dataclass
class AssociativeRecallConfig(FairseqDataclass):
    form: FORM = option(  # type: ignore[valid-type]
        "multi_query",
        "multi_query: all pairs of a key and a value, then queries at random places of noise; "
        "needle: pairs at random places of noise, then all queries",
    )
    length: int = option(64, "number of symbols of a sequence", least=1)
    pairs: int = option(8, "pairs of a key and a value in a sequence", least=1)
    least_pairs: int = option(
        1,
        "training sequences have a random number of pairs from this to --pairs, because models "
        "learn to recall from few pairs first; valid and test have --pairs",
        least=1,
    )
    queries: Optional[int] = option(  # noqa: UP045 (fairseq reads no other form)
        None, "keys whose value is asked (default: all pairs)", least=1
    )
    key_symbols: int = option(
        64, "number of different keys, from which each sequence draws", **SYMBOLS
    )
    value_symbols: int = option(64, "number of different values", **SYMBOLS)
    noise_symbols: int = option(64, "number of symbols of noise", **SYMBOLS)
    train_examples: int = option(100_000, "number of sequences in an epoch", **EXAMPLES)
    valid_examples: int = option(1000, "number of sequences in the validation set", **EXAMPLES)
    test_examples: int = option(1000, "number of sequences in the test set", **EXAMPLES)
    data_seed: int = option(1, "seed of the sequences, which do not depend on --seed", least=0)
    max_target_positions: int = option(4096, "positions of a language model", least=1)
    # What fairseq's transformer_lm reads of its task besides.
    tokens_per_sample: int = II("task.length")
    add_bos_token: bool = II("common.tpu")


@register_task("associative_recall", dataclass=AssociativeRecallConfig)
class AssociativeRecallTask(GeneratedTask):
    """Predicts the value of each key that is asked, in a sequence that states the values before.

    Every epoch has new training examples. With `--criterion sequence_tagging` it takes any model
    that returns (logits (B, L, C), extra) for src_tokens (B, L), such as fairseq's transformer_lm
    and the plugin's language models; C is the size of `target_dictionary`. Only queries have
    targets.
    """

    name = "associative_recall"
    positions_flag = "--max-target-positions"
    cfg: AssociativeRecallConfig

    def __init__(self, cfg: AssociativeRecallConfig) -> None:
        super().__init__(cfg)
        check_fields(cfg, AssociativeRecallConfig)
        queries = cfg.pairs if cfg.queries is None else cfg.queries
        self.examples = FORMS[str(cfg.form)](
            length=cfg.length,
            pairs=cfg.pairs,
            queries=queries,
            keys=cfg.key_symbols,
            values=cfg.value_symbols,
            noise=cfg.noise_symbols,
            least_pairs=cfg.least_pairs,
            seed=cfg.data_seed,
        )
        self.dictionary, self.symbols = dictionary_of(self.examples.symbols, "pad")
