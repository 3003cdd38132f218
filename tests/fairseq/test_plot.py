"""`memattn plot`: what is drawn is what the attentions of a trained model hold and read."""

import json
from types import SimpleNamespace

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.data import Dictionary
from full import others_in_full
from harness import LANGUAGE_MODEL, TRANSLATOR, lines_of, train
from torch import nn

from fairseq_memattn.attention.controls import CONTROLS, Sizes, Tokens, all_controls, make_control
from fairseq_memattn.attention.controls.options import option_fields
from fairseq_memattn.attention.nn.control_pool import ForwardScope, LayerControl
from fairseq_memattn.attention.ops.abc import naive as reference
from fairseq_memattn.cli import main
from fairseq_memattn.cli.shared import texts
from fairseq_memattn.modules.abc_attention import ABCAttention
from fairseq_memattn.modules.memories import attentions, memories_of
from fairseq_memattn.networks import Decoder, DecoderSizes

E, H, SLOTS, LENGTH = 8, 2, 5, 7
SLOTS_OF = {"cross": 8, "encoder": 6, "causal": 4}  # of the trained models below


# One attention of every control strategy.


class OneLayer(nn.Module):
    """An attention of one kind, under fairseq's name for it."""

    def __init__(self, control, kind):
        super().__init__()
        known = option_fields(all_controls()[control].Options)
        options = {"global_positions": (1, 4)} if "global_positions" in known else {}
        sizes = Sizes(E, SLOTS, H, H, E // H, max_positions=12, kind=kind)
        layer_control = LayerControl(make_control(control, sizes, **options), 0, ForwardScope())
        attention = ABCAttention(E, H, layer_control, causal=kind == "causal")
        self.add_module("encoder_attn" if kind == "cross" else "self_attn", attention)
        self.controls = nn.ModuleList([attention.control])

    def forward(self, query, key):
        (attention,) = (module for module in self.children() if isinstance(module, ABCAttention))
        return attention(query=query, key=key, value=key, key_padding_mask=None)[0]


def one_layer(control, kind):
    torch.manual_seed(1)
    model = OneLayer(control, kind)
    query, key = torch.randn(LENGTH - 2, 1, E), torch.randn(LENGTH, 1, E)
    return model, {"query": query if kind == "cross" else key, "key": key}


def only_memory(model, given):
    ((kind, layers),) = attentions(model).items()
    (memory,) = memories_of(model, given, layers)
    return kind, layers[0], memory


WITHOUT_CAUSAL = [name for name in CONTROLS if CONTROLS[name].causal_refusal]
EVERY = [
    (control, kind)
    for control in CONTROLS
    for kind in SLOTS_OF
    if kind != "causal" or control not in WITHOUT_CAUSAL
]


@pytest.mark.parametrize(("control", "kind"), EVERY)
def test_writing_and_reading_make_up_the_output(control, kind):
    model, given = one_layer(control, kind)
    found, attention, memory = only_memory(model, given)
    assert found == kind
    values = attention.v_proj(given["key"]).view(LENGTH, H, E // H).transpose(0, 1)
    heads = memory.reading @ memory.writing.transpose(1, 2) @ values
    made_up = attention.out_proj(heads.transpose(0, 1).flatten(1))
    # What causal attention holds after the last token is what its last query reads.
    seen = slice(-1, None) if kind == "causal" else slice(None)
    torch.testing.assert_close(made_up[seen], model(**given)[seen, 0])


@pytest.mark.parametrize("control", [name for name, kind in EVERY if kind == "causal"])
def test_each_token_reads_what_was_written_up_to_it(control):
    model, given = one_layer(control, "causal")
    whole = only_memory(model, given)[2].reading
    for length in range(1, LENGTH + 1):
        prefix = {name: x[:length] for name, x in given.items()}
        reading = only_memory(model, prefix)[2].reading
        torch.testing.assert_close(whole[:, length - 1], reading[:, -1])


def test_control_vectors_are_those_of_the_strategy():
    for control, kind in EVERY:
        model, given = one_layer(control, kind)
        _, attention, memory = only_memory(model, given)
        # Causal clustering is online, and windows of the encoder lie around each token.
        if (control, kind) == ("clustering", "causal") or attention.control.is_centred:
            continue
        k = attention.k_proj(given["key"]).view(1, LENGTH, H, E // H).transpose(1, 2)
        phi = attention.control.vectors(k, Tokens(given["key"].transpose(0, 1)))
        torch.testing.assert_close(memory.writing, phi.expand(1, H, -1, -1)[0])


def test_windows_around_each_token_have_a_slot_a_token():
    model, given = one_layer("window", "encoder")
    memory = only_memory(model, given)[2]
    assert torch.equal(memory.writing, torch.eye(LENGTH).expand(H, -1, -1))
    far = [[abs(t - s) > SLOTS // 2 for s in range(LENGTH)] for t in range(LENGTH)]
    assert torch.equal(memory.reading[0] == 0, torch.tensor(far))


def test_the_decoder_of_llamas_shape():
    controls = ({"control": "local_mlp", "slots": 4}, "softmax", {"control": "sinks", "slots": 4})
    sizes = {"vocab_size": 9, "embed_dim": E, "heads": H, "layers": 3, "deviation": 0.5}
    model, outputs = Decoder(DecoderSizes(**sizes, controls=controls)), []
    layers = attentions(model)["causal"]
    assert layers == [model.layers[0].self_attn, model.layers[2].self_attn]
    for layer in layers:
        layer.register_forward_hook(lambda module, args, out: outputs.append((args[0], out)))
    memories = memories_of(model, {"tokens": torch.arange(9)[None]}, layers)
    for layer, memory, (x, out) in zip(layers, memories, outputs, strict=True):
        heads = memory.reading @ memory.writing.mT @ layer.split(layer.v_proj(x))[0]
        torch.testing.assert_close(layer.join(heads[None])[0, -1], out[0, -1])


def test_kernel_attention_is_refused():
    made = make_control("rfa", Sizes(E, 4, H, H, E // H, kind="causal"))
    attention = ABCAttention(E, H, LayerControl(made, 0, ForwardScope()), causal=True)
    with pytest.raises(ValueError, match="kernel attention .* no control vectors"):
        memories_of(attention, {}, [attention])


# Trained models.


@pytest.fixture(scope="module")
def translator(bilingual, tmp_path_factory):
    """With a memory in each of its attentions."""
    flags = [*TRANSLATOR, "--abc-encoder-slots", SLOTS_OF["encoder"], "--max-update", 3]
    return train(bilingual, tmp_path_factory.mktemp("plotted"), *flags)


@pytest.fixture(scope="module")
def language_model(monolingual, tmp_path_factory):
    return train(
        monolingual, tmp_path_factory.mktemp("plotted"), *LANGUAGE_MODEL, "--max-update", 3
    )


def command(trained, folder, *flags):
    """Exit status, and the JSON that was written."""
    outputs = ["--output", folder / "memory.png", "--json", folder / "memory.json"]
    given = [trained.data, "--path", trained.checkpoint, *outputs, *flags]
    status = main(["plot", *map(str, given)])
    return status, json.loads((folder / "memory.json").read_text()) if status == 0 else None


def drawn(trained, folder, *flags):
    status, report = command(trained, folder, *flags)
    assert status == 0
    return report


PATHS = {
    "cross": "decoder.layers.{}.encoder_attn",
    "encoder": "encoder.layers.{}.self_attn",
    "causal": "decoder.layers.{}.self_attn",
}


def literal(trained, path, head, net_input):
    """phi (S, M) and p (T, M) of an ABC-MLP attention from the paper's formulas, in loops."""
    overrides = {"data": str(trained.data)}
    (model,), _, _ = checkpoint_utils.load_model_ensemble_and_task(
        [str(trained.checkpoint)], arg_overrides=overrides
    )
    attention = model.get_submodule(path)
    inputs = {}
    attention.register_forward_pre_hook(
        lambda module, args, kwargs: inputs.update(kwargs), with_kwargs=True
    )
    model.eval()
    with torch.no_grad():
        model(**net_input)
        size = attention.head_dim
        x, own = inputs["key"][:, 0], slice(head * size, (head + 1) * size)
        q = attention.q_proj(inputs["query"][:, 0])[:, own].double()
        k = attention.k_proj(x)[:, own].double()
        slots = attention.control.slots
        weight = attention.control.proj.weight[head * slots : (head + 1) * slots]
        log_alpha = (x @ weight.T).double()
    reading = []
    for t in range(len(q)):
        end = t + 1 if attention.causal else len(k)
        keys, _ = reference.memory(k[:end], k[:end], log_alpha[:end])
        reading.append((size**-0.5 * keys @ q[t]).softmax(dim=0))
    return log_alpha.softmax(dim=0), torch.stack(reading)


def assert_as_expected(memory, expected):
    for name, numbers in zip(("writing", "reading"), expected, strict=True):
        drawn_numbers = torch.tensor(memory[name], dtype=torch.double)
        torch.testing.assert_close(drawn_numbers, numbers, rtol=1e-4, atol=1e-5)
    totals = torch.tensor(memory["writing"]).sum(dim=0)
    torch.testing.assert_close(totals, torch.ones_like(totals), rtol=0, atol=1e-5)


def encoded(trained, line, language=""):
    file = trained.data / ("dict.txt" if not language else f"dict.{language}.txt")
    return Dictionary.load(str(file)).encode_line(line, add_if_not_exist=False).long()


@pytest.mark.parametrize("kind", others_in_full(SLOTS_OF, ["cross"]))
def test_a_translator_is_drawn_after_the_formulas(kind, translator, corpus, tmp_path):
    source, target = (lines_of(corpus / f"test.{language}")[3] for language in ("en", "ru"))
    tokens, words = encoded(translator, source, "en"), encoded(translator, target, "ru")
    net_input = {
        "src_tokens": tokens[None],
        "src_lengths": torch.tensor([len(tokens)]),
        "prev_output_tokens": words.roll(1)[None],
    }
    everything = ["--attention", kind, "--layer", "all", "--head", "all", "--index", 3]
    report = drawn(translator, tmp_path, *everything)
    assert report["attention"] == kind
    sides = {"en": [*source.split(), "</s>"], "ru": [*target.split(), "</s>"]}
    if kind == "causal":
        inputs = ["</s>", *target.split()]
        assert (report["writers"], report["readers"]) == (inputs, inputs)
    else:
        readers = sides["ru" if kind == "cross" else "en"]
        assert (report["writers"], report["readers"]) == (sides["en"], readers)
    assert [(m["layer"], m["head"]) for m in report["memories"]] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    for memory in report["memories"]:
        path = PATHS[kind].format(memory["layer"])
        expected = literal(translator, path, memory["head"], net_input)
        lengths = (len(report["writers"]), len(report["readers"]))
        assert [numbers.shape for numbers in expected] == [(n, SLOTS_OF[kind]) for n in lengths]
        assert_as_expected(memory, expected)


def test_a_language_model_is_drawn_after_the_formulas(language_model, corpus, tmp_path):
    line = lines_of(corpus / "test.en")[2]
    (tmp_path / "text").write_text(f"first\n{line}\n")
    report = drawn(language_model, tmp_path, "--text", tmp_path / "text", "--index", 1)
    assert report["writers"] == report["readers"] == ["</s>", *line.split()]
    tokens = encoded(language_model, line).roll(1)[None]
    lengths = torch.tensor([tokens.shape[1]])
    net_input = {"src_tokens": tokens, "src_lengths": lengths}
    (memory,) = report["memories"]
    path = PATHS["causal"].format(1)
    assert_as_expected(memory, literal(language_model, path, 0, net_input))


def test_sentences_of_a_window_are_cut_one_by_one():
    dictionary = Dictionary()
    for word in ("a!", "b!", "c!", "_eos"):
        dictionary.add_symbol(word)
    task = SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)
    line = texts.Line("a b _eos c", "c _eos a")
    settings = SimpleNamespace(context_separator="_eos")
    net_input = texts.of_line(
        *(line, task, settings, {"encoder", "decoder"}),
        lambda sentence: " ".join(f"{word}!" for word in sentence.split()),
    )
    labels = texts.labels(task, net_input, "cross")
    assert labels == (["a!", "b!", "_eos", "c!", "</s>"], ["c!", "_eos", "a!", "</s>"])


def test_pieces_keep_the_beginnings_of_words():
    dictionary = Dictionary()
    pieces = ["\u2581hell", "o", "\u2581", "w", "orld", "."]
    for piece in pieces:
        dictionary.add_symbol(piece)
    task = SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)
    net_input = {"src_tokens": dictionary.encode_line(" ".join(pieces)).long()[None]}
    assert texts.labels(task, net_input, "causal")[0] == [*pieces, "</s>"]
    assert texts.sentences(task, net_input) == ["hello world."]


def test_sentences_of_parts_of_words():
    dictionary = Dictionary()
    for part in ("he@@", "llo", "world"):
        dictionary.add_symbol(part)
    tokens = dictionary.encode_line("he@@ llo world").long()[None]
    task = SimpleNamespace(source_dictionary=dictionary)
    given = {"src_tokens": tokens, "context_tokens": tokens[None]}
    assert texts.sentences(task, given) == ["hello world"] * 2


# What is refused.


def test_refused_before_anything_is_loaded(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in {"one": "a\n", "two": "a\nb\n", "model.pt": ""}.items():
        (tmp_path / name).write_text(text)
    for flags, message in (
        ("--text one --target two", "--target two has 2 lines, but --text one has 1"),
        ("--text one --index 1", "--index must be below the 1 lines of --text one, but is 1"),
        ("--target one", "--target is for --text, which is not given"),
        ("--json x.png", "--json x.png is the file of --output as well"),
    ):
        given = [".", "--path", "model.pt", "--output", "x.png", *flags.split()]
        assert main(["plot", *given]) == 1
        assert capsys.readouterr().err == f"memattn plot: error: {message}\n"


def test_what_the_model_lacks_is_refused(language_model, tmp_path, capsys):
    for flags, message in (
        (["--layer", 2], "--layer must be from -2 to 1, but is 2"),
        (["--attention", "cross"], "--attention must be causal, where the model has a bound"),
    ):
        assert command(language_model, tmp_path, *flags)[0] == 1
        assert message in capsys.readouterr().err
    assert not (tmp_path / "memory.png").exists()
