"""A trained document translator and its task, loaded into this process."""

from argparse import Namespace
from typing import Any

from fairseq.checkpoint_utils import load_model_ensemble
from harness import Trained

from fairseq_memattn.models.abc_transformer import ABCTransformer


class Loaded:
    """The trained model and its task in this process."""

    def __init__(self, trained: Trained) -> None:
        self.hub = ABCTransformer.from_pretrained(
            str(trained.checkpoint.parent),
            checkpoint_file=trained.checkpoint.name,
            data_name_or_path=str(trained.data),
        )
        self.task = self.hub.task
        # The hub's own copy is stripped for incremental decoding.
        (self.model,), _ = load_model_ensemble([str(trained.checkpoint)], task=self.task)
        self.model.eval()
        self.task.load_dataset("test")
        self.dataset = self.task.datasets["test"]

    def batches(self, sentences: int) -> Any:
        """fairseq's batches of at most so many sentences, which can be passed through again."""
        limits = {"max_sentences": sentences, "max_positions": self.task.max_positions()}
        return self.task.get_batch_iterator(self.dataset, **limits)

    def generator(self, longer: int) -> Any:
        """Of a beam search; a translation has at most `longer` words more than its source."""
        options = Namespace(beam=4, lenpen=0.6, max_len_a=1, max_len_b=longer)
        return self.task.build_generator([self.model], options)
