"""A trained document translator and its task, loaded into this process."""

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
