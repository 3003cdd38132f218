"""Searches with context, against sentences that fairseq's generator decodes one by one by hand."""

import copy
import re
from argparse import Namespace
from types import SimpleNamespace

import pytest
import torch
from fairseq.checkpoint_utils import load_model_ensemble
from fairseq.data import Dictionary
from fairseq.tasks.fairseq_task import FairseqTask
from fairseq.token_generation_constraints import pack_constraints
from full import full
from harness import (
    COMMON,
    PLUGGED,
    SIZES,
    SOFTMAX,
    STREAM,
    WINDOWS,
    attempt,
    generate,
    hypotheses,
    lines_of,
    run,
    train,
)
from loaded_model import Loaded
from torch import nn

from fairseq_memattn.data.documents.collation import takes_sequences
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.tasks.inference.session import DocumentSession, SessionOptions

LIMITS = {"max_len_a": 1, "max_len_b": 3}
T5MEM = [*COMMON, *SIZES, "--arch", "t5mem_v4", "--share-all-embeddings"]


class Continued(nn.Module):
    """A model whose target begins after a given context: each step reads everything anew."""

    def __init__(self, model, inputs, context, separator):
        super().__init__()
        self.model, self.separator = model, separator
        self.encoder, self.decoder = _Given(model, inputs), _Continuation(model, context)
        self.max_decoder_positions = model.max_decoder_positions

    def get_normalized_probs(self, *args, **options):
        log_probs = self.model.get_normalized_probs(*args, **options)
        log_probs[..., self.separator] = -torch.inf
        return log_probs


class _Given(nn.Module):
    def __init__(self, model, inputs):
        super().__init__()
        self.model, self.inputs = model, inputs
        self.reorder_encoder_out = model.encoder.reorder_encoder_out

    def forward_torchscript(self, _):
        return self.model.encoder.forward_torchscript(self.inputs)


class _Continuation(nn.Module):
    def __init__(self, model, context):
        super().__init__()
        self.model, self.context = model, context

    def forward(self, tokens, encoder_out):
        context = self.context.expand(len(tokens), -1)
        read = torch.cat([tokens[:, :1], context, tokens[:, 1:]], dim=1)
        logits, _ = self.model.decoder(read, encoder_out=encoder_out)
        return logits[:, context.shape[1] :], None


def inputs_of(model, sentences, dictionary, before):
    """A window of source sentences, by hand."""
    if not takes_sequences(model):
        ends = [dictionary.index("_eos")] * (len(sentences) - 1) + [dictionary.eos()]
        row = [t for s, e in zip(sentences, ends, strict=True) for t in [*s[:-1].tolist(), e]]
        return {"src_tokens": torch.tensor([row]), "src_lengths": torch.tensor([len(row)])}
    lengths = torch.tensor([len(sentences[-1])])
    inputs = {"src_tokens": sentences[-1][None].long(), "src_lengths": lengths}
    inputs["target_context"] = torch.tensor([before])
    if len(sentences) > 1:
        rows = nn.utils.rnn.pad_sequence([s.long() for s in sentences[:-1]], True, dictionary.pad())
        inputs["context_tokens"] = rows[None]
        inputs["context_padding_mask"] = rows[None].eq(dictionary.pad())
    return inputs


def by_hand(task, models, documents, options, constraints=None):
    """All hypotheses of each sentence of the first documents; those of their contexts are known."""
    dataset, symbols, known = task.datasets["test"], task.tgt_dict, {}
    separator, begins = symbols.index("_eos"), options.get("prefix_size", 0)
    for sentence in (i for d in range(documents) for i in dataset.documents.sentences_of(d)):
        first = dataset.documents.sentences_of(dataset.documents.of(sentence))[0]
        earlier = range(max(first, sentence - 2), sentence)
        context = [t for i in earlier for t in [*known[i][0]["tokens"][:-1].tolist(), separator]]
        window = [dataset.source[i] for i in (*earlier, sentence)]
        inputs = [inputs_of(model, window, task.src_dict, len(earlier)) for model in models]
        prefix = torch.tensor([context], dtype=torch.long)
        parts = [Continued(*pair, prefix, separator) for pair in zip(models, inputs, strict=True)]
        given = {}
        if begins:
            given["prefix_tokens"] = dataset.reference(sentence)[None, :begins]
        if constraints is not None:
            given["constraints"] = constraints[sentence : sentence + 1]
        generator = FairseqTask.build_generator(task, parts, Namespace(**LIMITS | options))
        lengths = torch.tensor([len(window[-1])])
        batch = {"id": torch.tensor([0]), "net_input": inputs[0], "source_lengths": lengths}
        (known[sentence],) = generator.generate(parts, batch, **given)
    return known


def by_task(task, models, documents, options, constraints=None, together=3):
    dataset = task.datasets["test"]
    generator = task.build_generator(models, Namespace(**LIMITS | options))
    session = DocumentSession(
        dataset, range(documents), SessionOptions(together), constraints=constraints
    )
    sentences = range(dataset.documents.sentences_of(documents - 1)[-1] + 1)
    return session.translate(generator, models, sentences, torch.device("cpu"))


def assert_equal(found, expected):
    assert len(found) == len(expected) > 10
    for ours, theirs in zip(found, expected.values(), strict=True):
        assert [h["tokens"].tolist() for h in ours] == [h["tokens"].tolist() for h in theirs]
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(
                one["positional_scores"], other["positional_scores"], atol=1e-4, rtol=1e-4
            )
            torch.testing.assert_close(one["score"], other["score"], atol=1e-4, rtol=1e-4)


@pytest.fixture(scope="module")
def loaded(document_model):
    return Loaded(document_model)


@pytest.fixture(scope="module")
def kinds(document_data, loaded, once):
    """The checkpoints of one model of each kind, and the models themselves."""
    paths = {}
    for name, flags in (("softmax", SOFTMAX), ("t5mem", T5MEM)):
        flags = [*flags, *WINDOWS, "--max-update", 30]
        paths[name] = once(f"context_{name}", lambda to, f=flags: train(document_data, to, *f))
    models = {"abc": loaded.model}
    for name, trained in paths.items():
        (models[name],), _ = load_model_ensemble([str(trained.checkpoint)], task=loaded.task)
        models[name].eval()
    return paths, models


@pytest.mark.parametrize(
    "options",
    [
        {"beam": 4, "no_repeat_ngram_size": 2, "min_len": 3},
        full({"beam": 4, "lenpen": 0.5, "unkpen": 1.0, "temperature": 2.0}),
        full({"beam": 3, "prefix_size": 2}),
        full({"beam": 3, "prefix_size": 9, "no_repeat_ngram_size": 4, "min_len": 6}),
        full({"beam": 3, "diverse_beam_groups": 3}),
        full({"beam": 4, "diverse_beam_groups": 4, "no_repeat_ngram_size": 1}),
        full({"beam": 4, "diversity_rate": 0.5}),
    ],
    ids=lambda options: ", ".join(options),
)
def test_searches(options, loaded):
    task, models = loaded.task, [loaded.model]
    assert_equal(by_task(task, models, 3, options), by_hand(task, models, 3, options))


@pytest.mark.full
def test_an_ngram_may_repeat_one_of_the_context(loaded):
    """What a sentence does not repeat itself, the one before it may have."""
    found = by_task(loaded.task, [loaded.model], 3, {"beam": 1, "no_repeat_ngram_size": 1})
    words = [h[0]["tokens"].tolist()[:-1] for h in found]
    assert all(len(set(one)) == len(one) for one in words)
    assert any(set(one) & set(other) for one, other in zip(words, words[1:], strict=False))


@pytest.mark.full
@pytest.mark.parametrize("options", [{}, {"sampling_topk": 5}, {"sampling_topp": 0.8}])
def test_sampling_draws_as_without_context(options, loaded):
    options = {"beam": 3, "sampling": True, "temperature": 0.7} | options
    task, models = loaded.task, [loaded.model]
    for seed in (1, 2):
        torch.manual_seed(seed)
        expected = by_hand(task, models, 3, options)
        torch.manual_seed(seed)
        assert_equal(by_task(task, models, 3, options, together=1), expected)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["ordered", "unordered"])
def test_constraints(kind, loaded):
    dataset = loaded.dataset
    words = [[dataset.reference(i)[:2], dataset.reference(i)[-2:-1]] for i in range(len(dataset))]
    words[3] = []
    options = {"beam": 6, "constraints": kind, "max_len_b": 6}
    given = (loaded.task, [loaded.model], 3, options, pack_constraints(words))
    found = by_task(*given)
    assert_equal(found, by_hand(*given))
    assert all(w[1] in h[0]["tokens"] for w, h in zip(words, found, strict=False) if w)


@pytest.mark.full
@pytest.mark.parametrize("left", [True, False])
def test_alignments_are_with_the_sentence_alone(left, loaded, kinds):
    _, models = kinds
    softmax = copy.deepcopy(models["softmax"])
    softmax.prepare_for_inference_(
        SimpleNamespace(generation=SimpleNamespace(print_alignment="hard"))
    )
    task = copy.copy(loaded.task)
    task.cfg = copy.deepcopy(task.cfg)
    task.cfg.left_pad_source = left
    task.datasets = {}
    task.load_dataset("test")
    dataset, symbols = task.datasets["test"], task.tgt_dict
    options = {"beam": 2, "print_alignment": "hard"}
    found, known = by_task(task, [softmax], 3, options), []
    for sentence, ours in enumerate(found):
        first = dataset.documents.sentences_of(dataset.documents.of(sentence))[0]
        earlier = range(max(first, sentence - 2), sentence)
        window = [dataset.source[i] for i in (*earlier, sentence)]
        inputs = inputs_of(softmax, window, task.src_dict, 0)
        ends = [[*known[i][:-1].tolist(), symbols.index("_eos")] for i in earlier]
        given = [symbols.eos(), *sum(ends, [])]
        for one in ours:
            read = torch.tensor([given + one["tokens"][:-1].tolist()])
            with torch.no_grad():
                weights = softmax(**inputs, prev_output_tokens=read)[1]["attn"][0][0]
            own = weights[len(given) - 1 : -1, -len(window[-1]) : -1]
            assert one["alignment"] == [(int(s), t) for t, s in enumerate(own.argmax(dim=1))]
        known.append(ours[0]["tokens"])


@pytest.mark.full
@pytest.mark.parametrize("names", [("t5mem", "softmax", "abc"), ("abc", "t5mem"), ("t5mem",)])
def test_ensembles_of_any_models(names, loaded, kinds):
    """The logarithm of the mean of the probabilities, as fairseq's own ensembles."""
    models = [kinds[1][name] for name in names]
    options = {"beam": 3, "no_repeat_ngram_size": 3}
    found = by_task(loaded.task, models, 3, options)
    assert_equal(found, by_hand(loaded.task, models, 3, options))


@pytest.mark.full
def test_options_on_the_command_line(document_model, kinds, corpus):
    softmax, data = kinds[0]["softmax"], document_model.data
    flags = [*WINDOWS, "--beam", 2, "--max-len-b", 5]
    text = generate(document_model, *flags, "--prefix-size", 2)
    begins = Dictionary.load(str(data / "dict.ru.txt"))
    for number, line in enumerate(lines_of(corpus / "test.ru")):
        words = [word if word in begins else "<unk>" for word in line.split()[:2]]
        assert hypotheses(text)[number].text.split()[:2] == words
    for kind in ("hard", "soft"):
        text = generate(softmax, *flags, "--print-alignment", kind)
        assert len(re.findall(r"^A-\d+", text, re.MULTILINE)) == 34
    text = generate(document_model, *flags, "--score-reference", "--print-alignment")
    assert len(re.findall(r"^A-\d+\t(?:\d+-\d+ ?)+$", text, re.MULTILINE)) == 34
    sampled = ["--sampling", "--sampling-topk", 5, "--nbest", 2]
    one, other, again = (
        re.findall(r"^H-.*", generate(document_model, *flags, *sampled, "--seed", n), re.MULTILINE)
        for n in (1, 2, 1)
    )
    assert one == again != other


@pytest.mark.full
@pytest.mark.parametrize("kind", ["windows", "stream"])
def test_constraints_of_typed_lines(kind, document_model, stream_model, corpus):
    """In two buffers of one document, and in documents that an empty line ends."""
    trained, flags = {"windows": (document_model, WINDOWS), "stream": (stream_model, STREAM)}[kind]
    known = Dictionary.load(str(trained.data / "dict.ru.txt"))
    lines, wanted = [], {}
    pairs = zip(*(lines_of(corpus / f"test.{side}")[:6] for side in ("en", "ru")), strict=True)
    for number, (source, reference) in enumerate(pairs):
        words = [word for word in reference.split() if word in known]
        wanted[number + (number > 3)] = words[:1]
        lines += [""] * (number == 4) + ["\t".join([source, *words[:1]])]
    flags = [*flags, "--constraints", "--beam", 5, "--max-len-b", 20, "--buffer-size", 3]
    flags += ["--path", trained.checkpoint]
    done = run("fairseq-interactive", trained.data, *PLUGGED, *flags, stdin="\n".join(lines) + "\n")
    found = hypotheses(done.stdout)
    for number, words in wanted.items():
        assert not words or words[0] in found[number].text.split()


def test_what_does_not_work_ends_in_one_sentence(loaded, stream_model):
    task = loaded.task
    for name, value in (("lm_path", "lm.pt"), ("match_source_len", True), ("replace_unk", "")):
        args = Namespace(**{name: value or "x"})
        with pytest.raises(MemAttnError, match="does not work with --task document_translation"):
            task.build_generator([loaded.model], args)
    with pytest.raises(MemAttnError, match="give build_generator prefix_size"):
        generator = task.build_generator([loaded.model], Namespace())
        task.inference_step(generator, [loaded.model], {}, prefix_tokens=torch.tensor([[4]]))
    done = attempt(
        *("fairseq-generate", stream_model.data, *PLUGGED, *STREAM, "--print-alignment"),
        *("--path", stream_model.checkpoint),
    )
    assert "--print-alignment does not work with --stream" in done.stderr.splitlines()[-1]
