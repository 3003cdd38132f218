"""The models on a GPU, where Triton kernels compute the memories, against the same on the CPU."""

from copy import deepcopy

import pytest
import torch
from contract_cases import TRANSLATING, each_case
from contract_models import build, words
from fairseq import utils

from fairseq_memattn.attention.ops.common import chosen_backend

if not torch.cuda.is_available():
    pytest.skip("needs a GPU", allow_module_level=True)

GPU = torch.device("cuda")
PAD, BOS = words().pad(), words().bos()


class Pair:
    """A model on the CPU, the same on the GPU, and batches of five sentences."""

    def __init__(self, case, root):
        self.model, self.task, self.args = build(case, root)
        self.on_gpu = deepcopy(self.model).to(GPU)

    def batch(self, split):
        self.task.load_dataset(split, combine=split == "train")
        limits = utils.resolve_max_positions(self.task.max_positions(), self.model.max_positions())
        batches = self.task.get_batch_iterator(
            self.task.dataset(split), max_sentences=5, max_positions=limits
        )
        return next(batches.next_epoch_itr(shuffle=False))

    def loss_and_gradients(self, model, batch):
        """The loss of all tokens, and the gradients of all weights in one vector."""
        model.zero_grad()
        logits, *extra = model(**batch["net_input"])
        scores = model.get_normalized_probs((logits.float(), *extra), log_probs=True)
        loss = torch.nn.functional.nll_loss(
            scores.flatten(0, 1), batch["target"].flatten(), ignore_index=PAD, reduction="sum"
        )
        loss.backward()
        gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
        for one in gradients:
            if len(one) == len(self.task.target_dictionary):
                one[BOS] = 0  # of an embedding of 0, which an RMS norm divides by next to nothing
        return loss.item(), torch.cat([one.flatten().float().cpu() for one in gradients])

    def translations(self, model, batch):
        """The tokens of the hypotheses of each sentence."""
        generator = self.task.build_generator([model], self.args)
        found = self.task.inference_step(generator, [model], batch)
        return [[one["tokens"].tolist() for one in hypotheses] for hypotheses in found]


@pytest.fixture(scope="module")
def pair(contract_data):
    return lambda case: Pair(case, contract_data)


def moved(batch, dtype=torch.float32):
    def move(x):
        return x.to(GPU, dtype) if x.is_floating_point() else x.to(GPU)

    return utils.apply_to_sample(move, batch)


def test_kernels_run():
    q = torch.zeros(1, 1, 64, 8, device=GPU)
    assert chosen_backend(q, slots=6) == "triton"


@each_case()
def test_losses_and_gradients(case, pair):
    two = pair(case)
    batch = two.batch("train")
    expected, expected_gradients = two.loss_and_gradients(two.model, batch)
    loss, gradients = two.loss_and_gradients(two.on_gpu, moved(batch))
    assert loss == pytest.approx(expected, rel=1e-4)
    assert (gradients - expected_gradients).norm() < 1e-3 * expected_gradients.norm()


@each_case()
@pytest.mark.parametrize("how", ["weights", "autocast"])
def test_bfloat16(how, case, pair):
    two = pair(case)
    batch = two.batch("train")
    expected, expected_gradients = two.loss_and_gradients(two.model, batch)
    if how == "weights":
        loss, gradients = two.loss_and_gradients(
            two.on_gpu.bfloat16(), moved(batch, torch.bfloat16)
        )
    else:
        with torch.autocast(GPU.type, dtype=torch.bfloat16):
            loss, gradients = two.loss_and_gradients(two.on_gpu, moved(batch))
    assert loss == pytest.approx(expected, rel=0.05)
    assert torch.cosine_similarity(gradients, expected_gradients, dim=0) > 0.7


@each_case(*TRANSLATING)
def test_translations(case, pair):
    two = pair(case)
    # Batches of documents hold the state of their translation, so that each search has its own.
    expected = two.translations(two.model, two.batch("test"))
    assert two.translations(two.on_gpu, moved(two.batch("test"))) == expected
