"""The models in double precision: company, padding and the number of steps change no logit."""

from functools import partial

import pytest
import torch
from contract_cases import TRANSLATING, each_case
from contract_models import build, words
from fairseq import utils

PAD = words().pad()
CHOSEN = (4, 0, 7, 11, 9)  # sentences of the test set: first and later ones of documents
TOLERANCE = {"rtol": 0, "atol": 1e-9}


@pytest.fixture(autouse=True)
def in_double_precision(monkeypatch):
    """fairseq's own softmax attention computes the softmax in single precision."""
    monkeypatch.setattr(utils, "softmax", lambda x, dim, onnx_trace=False: x.softmax(dim))
    with torch.no_grad():
        yield


class Loaded:
    """A model in double precision and the batches of its test set."""

    def __init__(self, case, root):
        model, self.task, _ = build(case, root)
        self.model = model.double()
        self.task.load_dataset("test")
        self.dataset = self.task.dataset("test")

    def inputs(self, numbers):
        """The arguments of the forward pass, with the sentences in the order of the numbers."""
        batch = self.dataset.collater([self.dataset[number] for number in numbers])
        places = [batch["id"].tolist().index(number) for number in numbers]  # it sorts by length
        return {name: value[places] for name, value in batch["net_input"].items()}


@pytest.fixture(scope="module")
def loaded(contract_data):
    return lambda case: Loaded(case, contract_data)


def read_tokens(inputs):
    return inputs.get("prev_output_tokens", inputs["src_tokens"])


def rows(model, inputs):
    """The logits (L, V) of the L tokens of each row."""
    logits = model(**inputs)[0]
    return [row[real] for row, real in zip(logits, read_tokens(inputs).ne(PAD), strict=True)]


def with_padding_moved(inputs):
    """The source's padding on the other side."""
    tokens = inputs["src_tokens"]
    left = bool(tokens[:, 0].eq(PAD).any())
    sides = {"left_to_right": left, "right_to_left": not left}
    return inputs | {"src_tokens": utils.convert_padding_direction(tokens, PAD, **sides)}


@each_case()
def test_batch_mates_order_and_padding_change_nothing(case, loaded):
    one = loaded(case)
    alone = [rows(one.model, one.inputs([number]))[0] for number in CHOSEN]
    batches = {
        "together": one.inputs(CHOSEN),
        "on the other side": with_padding_moved(one.inputs(CHOSEN)),
        "shorter": one.inputs(CHOSEN[:2]),
    }
    for name, inputs in batches.items():
        for expected, found in zip(alone, rows(one.model, inputs), strict=False):
            torch.testing.assert_close(found, expected, **TOLERANCE, msg=lambda m, n=name: n + m)
    backwards = rows(one.model, one.inputs(CHOSEN[::-1]))
    for expected, found in zip(alone[::-1], backwards, strict=True):
        torch.testing.assert_close(found, expected, **TOLERANCE)


@each_case(*TRANSLATING, "language_model", every=4, first=1)
def test_scored_at_once_is_decoded_step_by_step(case, loaded):
    """Beams change places and continue one another halfway, as they do in a search."""
    one = loaded(case)
    inputs = one.inputs(CHOSEN)
    decode, reordered = one.model.decoder, torch.tensor([1, 1, 4, 0])
    if case.kind != "language_model":
        source = {name: x for name, x in inputs.items() if name != "prev_output_tokens"}
        encoded = one.model.encoder(**source)
        decode = partial(decode, encoder_out=encoded)
    tokens, state = read_tokens(inputs), {}
    half = tokens.shape[1] // 2
    steps = [decode(tokens[:, :end], incremental_state=state)[0] for end in range(1, half + 1)]
    decoded = torch.cat(steps, dim=1)[reordered]
    one.model.decoder.reorder_incremental_state_scripting(state, reordered)
    if case.kind != "language_model":
        decode.keywords["encoder_out"] = one.model.encoder.reorder_encoder_out(encoded, reordered)
    tokens = tokens[reordered]
    for end in range(half + 1, tokens.shape[1] + 1):
        step = decode(tokens[:, :end], incremental_state=state)[0]
        decoded = torch.cat([decoded, step], dim=1)
    given = {name: x[reordered] for name, x in inputs.items()}
    expected, real = rows(one.model, given), tokens.ne(PAD)
    for row, found, kept in zip(expected, decoded, real, strict=True):
        torch.testing.assert_close(found[kept], row, **TOLERANCE)


@each_case("language_model", every=5)
def test_a_prompt_in_parts_is_the_whole_prompt(case, loaded):
    one = loaded(case)
    tokens = read_tokens(one.inputs(CHOSEN))
    whole, _ = one.model.decoder.extract_features(tokens)
    memory, parts, start = {}, [], 0
    for part in tokens.split([2, 1, tokens.shape[1] - 3], dim=1):
        parts.append(one.model.decoder.read_on(part, memory, start))
        start += part.shape[1]
    real = tokens.ne(PAD)
    torch.testing.assert_close(torch.cat(parts, dim=1)[real], whole[real], **TOLERANCE)
