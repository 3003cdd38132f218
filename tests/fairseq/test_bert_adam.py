"""BERT's Adam, against its formula."""

import torch
from fairseq import optim
from omegaconf import OmegaConf

import fairseq_memattn

OPTIONS = {"adam_betas": "(0.9, 0.99)", "adam_eps": 1e-6, "weight_decay": 0.1, "lr": [0.5]}


def test_no_bias_correction_and_no_decay_of_vectors() -> None:
    fairseq_memattn.register()
    matrix, vector = (torch.nn.Parameter(torch.full(shape, 2.0)) for shape in ((2, 3), (3,)))
    cfg = OmegaConf.create({"_name": "bert_adam", **OPTIONS})
    optimizer = optim.build_optimizer(cfg, [matrix, vector])
    expected = {0.1: 2.0, 0.0: 2.0}  # the weight, by its decay
    mean = square = 0.0
    for grad in (4.0, -1.0):
        mean, square = 0.9 * mean + 0.1 * grad, 0.99 * square + 0.01 * grad**2
        matrix.grad, vector.grad = (torch.full_like(weight, grad) for weight in (matrix, vector))
        optimizer.step()
        for decay, weight in expected.items():
            change = mean / (square**0.5 + 1e-6) + decay * weight
            expected[decay] = weight - 0.5 * change
    torch.testing.assert_close(matrix.data, torch.full((2, 3), expected[0.1]))
    torch.testing.assert_close(vector.data, torch.full((3,), expected[0.0]))
    state = optimizer.state_dict()
    optimizer.load_state_dict(state, {"weight_decay": 0.2})
    assert optimizer.optimizer.param_groups[0]["weight_decay"] == 0.2
