"""GMAT's models against fairseq's and transformers' own, and what must not change their output."""

import json
import math
import shlex
from argparse import Namespace
from types import SimpleNamespace

import pytest
import torch
from corpora import numbered_words
from fairseq.checkpoint_utils import load_model_ensemble_and_task
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from harness import flags_of
from torch.testing import assert_close

from fairseq_memattn.cli import main
from fairseq_memattn.cli.shared.hf_checkpoint import checkpoint
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.models.gmat_bert import GMATBert
from fairseq_memattn.networks.positions import MAX_POSITIONS, BlockPositions, token_positions

WORDS = 20
TINY = {
    f"{side}_{key}": value
    for side in ("encoder", "decoder")
    for key, value in dict(layers=3, embed_dim=16, ffn_embed_dim=24, attention_heads=2).items()
}
SMALL = {"gmat_chunk": 4, "gmat_memory": 3}
KINDS = {
    "chunks": {},
    "window": {"gmat_sparsity": "window", "gmat_window": 2},
    "lsh": {"gmat_sparsity": "lsh", "gmat_lsh_rounds": 2, "gmat_lsh_buckets": 4},
    "untied": {"gmat_memory_projections": "qkvo"},
    "untied lsh": {"gmat_memory_projections": "qkv", "gmat_sparsity": "lsh"},
    "compressed": {"gmat_compress_after": 1},
    "compressed more": {"gmat_compress_after": 1, "gmat_memory_layers": 1},
    "positioned": {"gmat_memory_positions": True},
    "compressed positioned": {"gmat_memory_positions": True, "gmat_compress_after": 1},
    "compressed untied": {"gmat_compress_after": 1, "gmat_memory_projections": "qkvo"},
    "no memory": {"gmat_memory": 0},
}
each_kind = pytest.mark.parametrize("kind", KINDS)


WORDBOOK, MASKABLE = numbered_words(WORDS), numbered_words(WORDS, "<mask>")
PAD, EOS = WORDBOOK.pad(), WORDBOOK.eos()


def build(arch, longest=512, words=WORDBOOK, **options):
    """With random weights, norms and biases included."""
    args = Namespace(**TINY | {"dropout": 0.0, "attention_dropout": 0.0} | options)
    ARCH_CONFIG_REGISTRY[arch](args)
    is_bert = arch.endswith(("bert", "roberta"))
    task = SimpleNamespace(
        source_dictionary=words,
        target_dictionary=words,
        max_positions=lambda: longest if is_bert else (longest, longest),
    )
    if arch == "roberta":
        args.max_positions = longest
    torch.manual_seed(5)
    return shaken(ARCH_MODEL_REGISTRY[arch].build_model(args, task)).eval()


def shaken(model):
    """No weight at a value such as 0 or 1."""
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.2 * torch.randn_like(weight)
    return model


def bert(kind="chunks", **options):
    return build("gmat_bert", **SMALL | KINDS[kind] | options)


def rows(*lengths, left=False, seed=0):
    """Random words ending with eos; padding on a side."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.full((len(lengths), max(lengths)), PAD)
    for row, length in zip(tokens, lengths, strict=True):
        words = torch.randint(4, 4 + WORDS, (length - 1,), generator=generator)
        row[slice(-length, None) if left else slice(length)] = torch.cat([words, torch.tensor([2])])
    return tokens


def embedded(encoder, tokens):
    """What enters the first layer of the encoder."""
    padding = tokens.eq(PAD)
    return encoder.embedded(encoder.embed_tokens(tokens), token_positions(padding), padding)


def with_weights(model, other):
    """The model, with the other's weights in the places of the same names."""
    lacking, unexpected = model.load_state_dict(other.state_dict(), strict=False)
    return model, lacking, unexpected


# --- Against fairseq


@torch.no_grad()
def test_without_memory_it_is_roberta():
    theirs = build("roberta")
    ours, lacking, unexpected = with_weights(build("gmat_bert", gmat_memory=0), theirs)
    assert (lacking, unexpected) == (["encoder.sentence_encoder.embed_positions.blocks"], [])
    torch.nn.init.zeros_(ours.encoder.sentence_encoder.embed_positions.blocks)
    tokens = rows(13, 6, 1)
    real = tokens.ne(PAD)
    assert_close(ours(tokens)[0][real], theirs(tokens)[0][real], rtol=0, atol=1e-5)


@torch.no_grad()
def test_one_chunk_is_dense_attention_over_memory_and_tokens():
    theirs = build("roberta").encoder.sentence_encoder
    ours = bert(gmat_chunk=512).encoder.sentence_encoder
    ours.load_state_dict(theirs.state_dict(), strict=False)
    tokens = rows(9, 5)
    x = embedded(ours, tokens)
    memory = ours.layernorm_embedding(ours.memory_tokens.weight).expand(2, -1, -1)
    x = torch.cat([memory, x], dim=1).transpose(0, 1)
    padding = torch.cat([torch.zeros(2, 3, dtype=torch.bool), tokens.eq(PAD)], dim=1)
    for layer in theirs.layers:
        x = layer(x, padding)
    out = ours(tokens, return_all_hiddens=True)
    assert_close(out["memory"][0], x[:3].transpose(0, 1), rtol=0, atol=1e-5)
    real = tokens.ne(PAD).t()
    assert_close(out["encoder_out"][0][real], x[3:][real], rtol=0, atol=1e-5)
    assert len(out["encoder_states"]) == 4
    assert torch.equal(out["encoder_states"][-1], out["encoder_out"][0])


@each_kind
@pytest.mark.parametrize("left", [False, True])
@torch.no_grad()
def test_words_do_not_depend_on_the_batch(kind, left):
    model = bert(kind)
    lengths = (11, 6, 3)
    tokens = rows(*lengths, left=left)
    together, extra = model(tokens)
    for number, row in enumerate(tokens):
        alone, extra_alone = model(row[row.ne(PAD)].unsqueeze(0))
        assert_close(together[number][row.ne(PAD)], alone[0], rtol=0, atol=1e-5)
        if KINDS[kind].get("gmat_memory") != 0:
            assert extra["memory"].shape == (3, 3, 16)
            assert_close(extra["memory"][number], extra_alone["memory"][0], rtol=0, atol=1e-5)


# --- What must not change the output


@each_kind
def test_gradients_reach_every_weight(kind):
    model = bert(kind).train()
    model(rows(11, 6))[0].square().sum().backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, name
        # What is added to all keys of a softmax changes nothing.
        assert name.endswith("k_proj.bias") or weight.grad.abs().sum() > 0, name


def test_hashing_is_fresh_in_training_and_fixed_in_evaluation():
    model, tokens = bert("lsh", gmat_memory=0), rows(64)
    assert torch.equal(model(tokens)[0], model(tokens)[0])
    model.train()
    assert not torch.equal(model(tokens)[0], model(tokens)[0])
    assert bert("untied lsh", longest=32).args.gmat_lsh_buckets == 16


# --- Other chunks and memories than those of training


@torch.no_grad()
def test_fewer_memory_tokens_are_the_first_ones():
    trained, tokens = bert("untied", gmat_memory=5), rows(9)
    smaller = bert("untied", gmat_memory=2)
    state = trained.state_dict()
    smaller.load_state_dict(dict(state))
    encoder = trained.encoder.sentence_encoder
    assert torch.equal(
        smaller.encoder.sentence_encoder.memory_tokens.weight, encoder.memory_tokens.weight[:2]
    )
    none = bert("untied", gmat_memory=0)
    none.load_state_dict(dict(state))
    expected, lacking, _ = with_weights(bert(gmat_memory=0), none)
    assert not lacking
    assert torch.equal(none(tokens)[0], expected(tokens)[0])
    with pytest.raises(MemAttnError, match="--gmat-memory 6 is more than the 5 memory tokens"):
        bert("untied", gmat_memory=6).load_state_dict(dict(state))


# --- Positions


@pytest.mark.parametrize("block", [512, 60])
@torch.no_grad()
def test_positions_are_sums_of_two_vectors(block):
    positions = shaken(BlockPositions(4, PAD, block))
    padding = rows(1100, 520).eq(PAD)
    out = positions(token_positions(padding), padding)
    for row, p in ((0, 0), (0, 511), (0, 512), (0, 1099), (1, 519)):
        expected = positions.weight[PAD + 1 + p % block] + positions.blocks[p // block]
        assert_close(out[row, p], expected)
    longest = torch.zeros(1, MAX_POSITIONS, dtype=torch.bool)
    last = positions.weight[PAD + 1 + (MAX_POSITIONS - 1) % block] + positions.blocks[-1]
    assert_close(positions(token_positions(longest), longest)[0, -1], last)
    with pytest.raises(MemAttnError, match="at most 32768 tokens .*, but has 32769"):
        bert()(torch.full((1, MAX_POSITIONS + 1), 4))


@torch.no_grad()
def test_positions_without_q():
    """POSq n, of tables 10 and 12 to 14: as with q for the first N, and nothing of q is trained."""
    with_q, without = (bert(gmat_position_block=8, gmat_positions=kind) for kind in ("qr", "r"))
    names = {name for name, weight in without.named_parameters() if not weight.requires_grad}
    assert names == {"encoder.sentence_encoder.embed_positions.blocks"}
    without.load_state_dict(with_q.state_dict())
    short, long = rows(8, 5), torch.full((1, 20), 4)
    assert torch.equal(with_q(short)[0], without(short)[0])
    places = embedded(without.encoder.sentence_encoder, long)[0]
    assert torch.equal(places[:8], places[8:16])
    assert not torch.equal(*embedded(with_q.encoder.sentence_encoder, long)[0, :16].view(2, 8, -1))


@torch.no_grad()
def test_without_positions_order_does_not_matter():
    tokens = rows(12)
    other = torch.randperm(12, generator=torch.Generator().manual_seed(1))
    for without in (True, False):
        model = bert(gmat_chunk=12, no_token_positional_embeddings=without)
        out, shuffled = model(tokens)[0], model(tokens[:, other])[0]
        assert torch.allclose(out[:, other], shuffled, atol=1e-5) == without


@torch.no_grad()
def test_memory_vectors_have_the_positions_of_their_parts():
    """One vector of a text after another, from the embedding of a token at that position."""
    encoder = bert(gmat_memory_positions=True, gmat_memory=3).encoder.sentence_encoder
    table = encoder.embed_positions(torch.arange(9)[None], torch.zeros(1, 9).bool())[0]
    for length, positions in ((9, [1, 4, 7]), (5, [0, 2, 4]), (2, [0, 1, 1]), (1, [0, 0, 0])):
        found = encoder.first_memory(torch.tensor([length, 9]))
        for slot, position in enumerate(positions):
            assert position == math.floor((slot + 0.5) * length / 3)
            vector = encoder.memory_tokens.weight[slot] + table[position]
            assert_close(found[0, slot], encoder.layernorm_embedding(vector))
        assert torch.equal(found[1], encoder.first_memory(torch.tensor([9]))[0])
    words = torch.tensor([[7, PAD]])
    given = encoder.first_memory(torch.tensor([9]), words)
    assert_close(given[0, 0], encoder.layernorm_embedding(encoder.embed_tokens.weight[7]))
    assert torch.equal(given[0, 1:], encoder.first_memory(torch.tensor([9]))[0, 1:])


# --- Compression


@pytest.mark.parametrize("alone", [0, 1])
@torch.no_grad()
def test_compression_layer_by_layer(alone):
    model = bert(gmat_compress_after=1, gmat_memory_layers=alone, gmat_chunk=512)
    encoder = model.encoder.sentence_encoder
    tokens = rows(9, 5)
    lengths = tokens.ne(PAD).sum(1)
    memory = encoder.layernorm_embedding(encoder.memory_tokens.weight).expand(2, -1, -1)
    layers, padding = iter(encoder.layers), tokens.eq(PAD)
    both = next(layers)(torch.cat([memory, embedded(encoder, tokens)], dim=1), padding)[:, :3]
    for _ in range(alone):
        both = next(layers)(both, None)
    stored = encoder.compress(tokens)
    assert_close(stored, both)
    places = encoder.embed_positions(token_positions(padding), padding)
    both = torch.cat([both, encoder.layernorm_embedding(places)], dim=1)
    for layer in layers:
        both = layer(both, padding)
    real = padding.logical_not()
    out = encoder.decompress(stored, lengths)
    assert_close(out[real], both[:, 3:][real])
    assert torch.equal(out[real], model(tokens, features_only=True)[0][real])
    # Another text with the same memory would be read as the same text.
    assert_close(encoder.decompress(stored[1:], lengths[1:])[0], out[1, :5], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gmat_sparsity": "x"}, "--gmat-sparsity must be one of chunks, lsh, window, but is x"),
        ({"gmat_lsh_buckets": 7}, "--gmat-lsh-buckets must be even, but is 7"),
        ({"gmat_compress_after": 2, "gmat_memory_layers": 1}, "must leave some of the 3"),
        ({"longest": MAX_POSITIONS + 1}, "32769 positions, but .* end at 32768"),
    ],
)
def test_what_makes_no_sense_is_refused(options, message):
    with pytest.raises(MemAttnError, match=message):
        bert(**options)


# --- Translation

DECODERS = {
    "softmax": {},
    "abc": {"abc_causal_slots": 3, "abc_cross_slots": 4},
    "clustering": {"abc_cross_slots": 4, "gmat_decoder_control": "clustering"},
    "positioned memory": {"gmat_memory_positions": True},
}


def translator(decoder="softmax", **options):
    return build("gmat_transformer", **SMALL | DECODERS[decoder] | options)


@torch.no_grad()
def test_without_memory_it_is_fairseq_s_transformer():
    theirs = build("transformer")
    ours, lacking, unexpected = with_weights(translator(gmat_memory=0, gmat_chunk=99), theirs)
    assert not lacking and not unexpected
    source, target = rows(9, 5, left=True), rows(6, 4)
    (out, extra), (expected, theirs_extra) = (m(source, None, target) for m in (ours, theirs))
    assert_close(out, expected, rtol=0, atol=1e-5)
    # Weights of source tokens, for alignments, are where fairseq expects them.
    assert_close(extra["attn"][0], theirs_extra["attn"][0], rtol=0, atol=1e-5)


# --- From other models


def saved(folder, model, arch, flags=()):
    """What fairseq-train would have saved of a model, in a folder with its dictionary."""
    folder.mkdir(exist_ok=True)
    WORDBOOK.save(str(folder / "dict.txt"))
    sizes = [f"--{k.replace('_', '-')}={v}" for k, v in TINY.items() if k.startswith("encoder")]
    flags = ["--task", "masked_lm", "--arch", arch, "--tokens-per-sample", "512", *sizes, *flags]
    state = checkpoint(type(model), flags, model.state_dict(), MASKABLE, device="cpu")
    torch.save(state, folder / "model.pt")
    return folder / "model.pt"


def loaded(path, folder, **overrides):
    (model,), _, task = load_model_ensemble_and_task(
        [str(path)], arg_overrides={"data": str(folder), **overrides}
    )
    return model.eval(), task


@torch.no_grad()
def test_from_roberta(tmp_path, capsys, caplog):
    theirs = build("roberta", words=MASKABLE)
    path = saved(tmp_path / "roberta", theirs, "roberta")
    tokens = rows(13, 6)
    for flags, shown in (
        ("--gmat-memory 0", "embed_positions.blocks"),
        ("--gmat-memory 3 --gmat-chunk 4 --gmat-memory-projections qkv", "memory_tokens.weight"),
    ):
        output = tmp_path / "gmat.pt"
        argv = ["convert", str(path.parent), "--path", str(path), "--arch", "gmat_bert"]
        assert main([*argv, "--output", str(output), f"--flags={flags}"]) == 0
        state = torch.load(output, weights_only=False)["model"]
        assert any(name.endswith(shown) for name in state)
        assert all(torch.equal(state[name], x) for name, x in theirs.state_dict().items())
    told = flags_of(capsys.readouterr().out)
    assert told[:4] == ["--finetune-from-model", str(output), "--arch", "gmat_bert"]
    flags = "--gmat-chunk 4 --gmat-memory 3 --gmat-memory-projections qkv"
    assert flags in shlex.join(told)
    # The memory can still be left out, and the chunk be as long as the text.
    with caplog.at_level("WARNING"):
        model, _ = loaded(output, path.parent, gmat_memory=0, gmat_chunk=512)
    assert "using the first 0 of the checkpoint's 3 memory vectors" in caplog.text
    assert_close(model(tokens)[0][tokens.ne(PAD)], theirs(tokens)[0][tokens.ne(PAD)])


def test_keys_cannot_become_queries(tmp_path, capsys):
    path = saved(tmp_path / "roberta", build("roberta", words=MASKABLE), "roberta")
    argv = ["convert", str(path.parent), "--path", str(path), "--arch", "gmat_bert"]
    argv += ["--output", str(tmp_path / "gmat.pt"), "--flags=--gmat-sparsity lsh"]
    assert main(argv) == 1
    assert "error: --gmat-sparsity lsh uses queries as keys" in capsys.readouterr().err


PIECES = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "cat", "##s", "."]
UNUSED = 2


@pytest.fixture(scope="module")
def berts(tmp_path_factory):
    """A tiny BERT with random weights as transformers saves it, and what `import-bert` makes."""
    transformers = pytest.importorskip("transformers", reason="BERT's other implementation")
    folder = tmp_path_factory.mktemp("bert")
    torch.manual_seed(2)
    config = transformers.BertConfig(
        vocab_size=len(PIECES) + UNUSED,
        **{"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2},
        intermediate_size=24,
    )
    theirs = shaken(transformers.BertForPreTraining(config)).eval()
    with torch.no_grad():  # so small that what norms add to the variance is seen
        theirs.bert.embeddings.word_embeddings.weight *= 0.01
        theirs.bert.embeddings.position_embeddings.weight *= 0.01
        theirs.bert.embeddings.token_type_embeddings.weight *= 0.01
    theirs.save_pretrained(folder)
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in PIECES), encoding="utf-8")
    return folder, theirs


def import_bert(folder, output):
    files = ["--output", str(output / "bert.pt"), "--dict", str(output / "dict.txt")]
    return main(["import-bert", str(folder), *files])


@torch.no_grad()
def test_from_bert(berts, tmp_path, capsys):
    folder, theirs = berts
    assert import_bert(folder, tmp_path) == 0
    assert "bert.pooler.dense.weight" in capsys.readouterr().out
    model, task = loaded(tmp_path / "bert.pt", tmp_path)
    assert isinstance(model, GMATBert)
    words = task.source_dictionary
    ours = {"[PAD]": "<pad>", "[CLS]": "<s>", "[SEP]": "</s>", "[UNK]": "<unk>", "[MASK]": "<mask>"}
    index = torch.tensor([words.index(ours.get(piece, piece)) for piece in PIECES])
    assert len(words) == len(PIECES) + UNUSED and len(set(index.tolist())) == len(PIECES)

    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(1, len(PIECES), (2, 512), generator=generator)
    tokens[1, 40:] = 0
    real = tokens.ne(0)
    expected = theirs(tokens, attention_mask=real.long()).prediction_logits
    out = model(index[tokens])[0][..., index]
    assert_close(out[real], expected[real][:, : len(PIECES)], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("config.json", {"hidden_act": "relu"}, "hidden_act must be 'gelu', as in BERT, but is"),
        ("config.json", {"vocab_size": 10**12}, "must be at most the 12 in the weights"),
        ("vocab.txt", PIECES[:5] + PIECES[6:], "vocab.txt lacks [MASK]"),
        ("vocab.txt", [*PIECES, "cat"], "the vocabulary has 'cat' twice"),
    ],
)
def test_what_is_not_bert_is_refused(name, change, message, berts, tmp_path, capsys):
    source, folder = berts[0], tmp_path / "folder"
    folder.mkdir()
    for file in source.iterdir():
        (folder / file.name).symlink_to(file)
    content = "\n".join(change) if isinstance(change, list) else ""
    if isinstance(change, dict):
        content = json.dumps(json.loads((source / name).read_text()) | change)
    (folder / name).unlink()
    (folder / name).write_text(content)
    assert import_bert(folder, tmp_path) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "bert.pt").exists()
