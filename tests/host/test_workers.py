"""Workers that load batches, each epoch anew."""

from collections.abc import Iterator
from multiprocessing import active_children

import pytest
import torch
from fairseq.data import FairseqDataset
from fairseq.data.iterators import EpochBatchIterator

from fairseq_memattn.host.correctness.workers import end_workers
from fairseq_memattn.host.patches import prepare_fairseq


class Numbered(FairseqDataset):
    """Its samples are the numbers of the epoch."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> int:
        return self.epoch

    def collater(self, samples: list[int]) -> torch.Tensor:
        return torch.tensor(samples)


@pytest.fixture
def make() -> Iterator[object]:
    prepare_fairseq()
    made = []

    def make_(workers: int) -> EpochBatchIterator:
        data = Numbered()
        options = {"num_workers": workers, "reuse_dataloader": True, "buffer_size": 2}
        made.append(EpochBatchIterator(data, data.collater, [[0, 1], [2]], **options))
        return made[-1]

    yield make_
    for batches in made:
        end_workers(batches)


def read(batches: EpochBatchIterator) -> list[int]:
    return torch.cat(list(batches.next_epoch_itr(shuffle=False))).tolist()


@pytest.mark.parametrize("workers", [0, 1])
def test_workers_know_the_epoch(make, workers: int) -> None:
    batches, before = make(workers), set(active_children())
    for epoch in (1, 2, 3):
        assert read(batches) == [epoch] * 3
        assert len(set(active_children()) - before) == workers


@pytest.mark.parametrize("workers", [0, 1])
def test_a_resumed_epoch_goes_on(make, workers: int) -> None:
    batches = make(workers)
    batches.load_state_dict({"epoch": 2, "iterations_in_epoch": 1, "shuffle": False})
    assert read(batches) == [2]
    assert read(batches) == [3] * 3


@pytest.mark.full
def test_a_batch_that_cannot_be_sent_is_an_error(make) -> None:
    """multiprocessing leaves it out, and the command would wait for it."""
    batches = make(1)
    batches.collate_fn = lambda samples: lambda: samples  # not picklable
    with pytest.raises(RuntimeError, match="exited unexpectedly"):
        list(batches.next_epoch_itr(shuffle=False))
