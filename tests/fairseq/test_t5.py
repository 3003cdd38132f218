"""T5 against the implementation of `transformers`, with the same random weights."""

import json
import shlex
import shutil
from argparse import Namespace
from copy import deepcopy
from types import SimpleNamespace

import pytest
import sentencepiece
import torch
from fairseq.checkpoint_utils import load_model_ensemble_and_task
from fairseq.data.data_utils import collate_tokens
from full import full
from harness import COMMON, Trained, generate, hypotheses, logged, preprocess, train

from fairseq_memattn.cli import main
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.host.checkpoints import read_checkpoint
from fairseq_memattn.models import hf_t5
from fairseq_memattn.models.hf_checks import check_sizes
from fairseq_memattn.models.t5 import T5

transformers = pytest.importorskip("transformers", reason="T5's other implementation is missing")

PIECES, EXTRA_IDS, UNUSED = 34, 5, 3
SYMBOLS = PIECES + EXTRA_IDS + UNUSED
HF_PAD = 0
TEXT = [
    "a cat sat on the mat .",
    "the dog sings to the sun and to the sea , all day long , and then again at night .",
    "we drink tea .",
    "birds go home to the sea .",
    "on the mat the dog drinks milk , and the cat sings .",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny T5 as transformers saves it, beside a SentencePiece model with T5's specials."""
    folder = tmp_path_factory.mktemp("transformers")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT * 3),
        model_prefix=str(folder / "spiece"),
        vocab_size=PIECES,
        **{"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1, "num_threads": 1},
        minloglevel=2,
    )
    taught(tiny_t5(), [*TO_SEARCH, *encoded(folder)]).save_pretrained(folder)
    return folder


def encoded(folder):
    """TEXT in the model's pieces, each sentence with its end."""
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "spiece.model"))
    return [torch.tensor(pieces.encode(line) + [1]) for line in TEXT]


def tiny_t5(**changes):
    """Sizes that differ where they can, and no weight at a special value such as 1."""
    sizes = {"d_model": 24, "d_kv": 8, "num_heads": 2, "d_ff": 40, "num_layers": 3}
    tokens = {"vocab_size": SYMBOLS, "decoder_start_token_id": HF_PAD}
    torch.manual_seed(3)
    settings = {**sizes, "num_decoder_layers": 2, **tokens, **changes}
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(**settings))
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.1 * torch.randn_like(weight)
    return model.eval()


def taught(model, sentences):
    """So much that its sentences differ and end, which random weights' do not."""
    targets = batch(*(2 + number % 8 * 2 for number in range(len(sentences))))
    (tokens, mask), (labels, real) = for_theirs(sentences), for_theirs(targets)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(60):
        optimizer.zero_grad()
        labels = labels.masked_fill(~real, -100)
        model(input_ids=tokens, attention_mask=mask, labels=labels).loss.backward()
        optimizer.step()
    return model


@pytest.fixture(scope="module")
def theirs(folder):
    return transformers.T5ForConditionalGeneration.from_pretrained(folder).eval()


def convert(folder, output, *flags):
    files = ["--output", str(output / "t5.pt"), "--dict", str(output / "dict.txt")]
    return main(["import-t5", str(folder), *files, "--extra-ids", str(EXTRA_IDS), *flags])


@pytest.fixture(scope="module")
def imported(folder, tmp_path_factory):
    """The folder with t5.pt and dict.txt, and bin/ with text in the model's pieces."""
    output = tmp_path_factory.mktemp("imported")
    assert convert(folder, output) == 0
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "spiece.model"))
    for name in ("train.x", "train.y", "valid.x", "valid.y", "test.x", "test.y"):
        lines = (" ".join(pieces.encode(line, out_type=str)) for line in TEXT)
        (output / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    preprocess(
        output, *("-s", "x", "-t", "y", "--joined-dictionary", "--srcdict", output / "dict.txt")
    )
    return output


@pytest.fixture(scope="module")
def loaded(imported):
    """The model and the task of the imported checkpoint."""
    models, _, task = load_model_ensemble_and_task(
        [str(imported / "t5.pt")], arg_overrides={"data": str(imported / "bin")}
    )
    return models[0].eval(), task


@pytest.fixture
def ours(loaded):
    model, _ = loaded
    model.zero_grad()
    return model


def batch(*lengths, seed=1):
    """Random sentences in T5's numbering, each with its end."""
    torch.manual_seed(seed)
    return [torch.cat([torch.randint(3, SYMBOLS, (n - 1,)), torch.tensor([1])]) for n in lengths]


def for_theirs(sentences):
    """Padded, and True where a sentence is."""
    tokens = collate_tokens(sentences, HF_PAD)
    return tokens, tokens.ne(HF_PAD)


def for_ours(sentences, left_pad=False, **options):
    """The same in fairseq's numbering, one higher, with padding on a side."""
    return collate_tokens([tokens + 1 for tokens in sentences], 1, 2, left_pad, **options)


def logits(model, source, target, **options):
    """Over T5's vocabulary."""
    previous = for_ours(target, move_eos_to_beginning=True)
    out = model(for_ours(source, **options), None, previous)[0]
    return out[..., [0, *range(2, out.shape[-1])]]


SOURCES = batch(37, 1, 150, 8)
TARGETS = batch(141, 2, 9, 33, seed=2)
TO_SEARCH = batch(5, 9, 3, 31, 12, 7, 18, 2, seed=7)


# ------------------------------------------------------------------------------------ model


@pytest.mark.parametrize("left_pad", [False, True], ids=["right", "left"])
def test_logits(left_pad, ours, theirs):
    """In double precision, as everywhere here that rounding could decide."""
    ours, theirs = deepcopy(ours).double(), deepcopy(theirs).double()
    tokens, mask = for_theirs(SOURCES)
    labels, real = for_theirs(TARGETS)
    with torch.no_grad():
        expected = theirs(input_ids=tokens, attention_mask=mask, labels=labels).logits
        actual = logits(ours, SOURCES, TARGETS, left_pad=left_pad)
    torch.testing.assert_close(actual[real], expected[real], atol=1e-5, rtol=1e-5)


def test_loss_and_gradients(ours, theirs):
    tokens, mask = for_theirs(SOURCES)
    labels, real = for_theirs(TARGETS)
    theirs.zero_grad()
    expected = theirs(
        input_ids=tokens, attention_mask=mask, labels=labels.masked_fill(~real, -100)
    ).loss
    expected.backward()
    net_output = ours(for_ours(SOURCES), None, for_ours(TARGETS, move_eos_to_beginning=True))
    log_probs = ours.get_normalized_probs(net_output, log_probs=True)
    assert log_probs.isfinite().all()  # label smoothing sums them
    actual = torch.nn.functional.nll_loss(log_probs[real], for_ours(TARGETS)[real])
    actual.backward()
    torch.testing.assert_close(actual, expected, atol=1e-6, rtol=1e-6)

    gradients = {name: weight.grad for name, weight in theirs.named_parameters()}
    wanted, _ = hf_t5.weights(gradients)
    table = wanted.pop("decoder.embed_tokens.weight")[1:]
    del wanted["encoder.embed_tokens.weight"]
    found = {name: weight.grad for name, weight in ours.named_parameters()}
    ours_table = found.pop("encoder.embed_tokens.weight")
    torch.testing.assert_close(ours_table[1], torch.zeros(24), atol=1e-8, rtol=0)
    torch.testing.assert_close(ours_table[[0, *range(2, len(ours_table))]], table)
    assert found.keys() == wanted.keys()
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, wanted[name], atol=1e-5, rtol=1e-4, msg=name)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision(dtype, loaded, theirs):
    half = deepcopy(loaded[0]).to(dtype)
    with torch.no_grad():
        whole = logits(loaded[0], SOURCES, TARGETS)
        actual = logits(half, SOURCES, TARGETS, left_pad=True).float()
        real = for_theirs(TARGETS)[1]
        assert (actual - whole)[real].abs().mean() < 0.05 * whole[real].abs().mean()
        # States that outgrow float16 end in no infinity.
        half.encoder.layers[0].ffn.block.wo.weight *= 3e4
        assert logits(half, SOURCES, TARGETS).isfinite().all()


# ----------------------------------------------------------------------------------- search


def searched(theirs, sentences, beam, length):
    """The hypotheses of transformers: T5's tokens without the start, and scores."""
    tokens, mask = for_theirs(sentences)
    found = theirs.generate(
        input_ids=tokens,
        attention_mask=mask,
        num_beams=beam,
        num_return_sequences=beam,
        do_sample=False,
        min_new_tokens=1,  # fairseq's --min-len
        max_new_tokens=length,
        early_stopping=beam > 1,
        length_penalty=1.0,
        return_dict_in_generate=True,
        output_scores=True,
    )
    return found.sequences[:, 1:].unflatten(0, (-1, beam)), getattr(found, "sequences_scores", None)


def ended(row):
    """The tokens up to the first end, or None where there is none."""
    tokens = row.tolist()
    return tuple(tokens[: tokens.index(1) + 1]) if 1 in tokens else None


def without_near_ties(theirs, sentences, beam, length):
    """The numbers of the sentences whose best hypothesis ends, and stays under small changes."""
    bests = []
    for seed in range(4):
        changed, generator = deepcopy(theirs), torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for weight in changed.parameters() if seed else ():
                noise = torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
                weight *= 1 + 1e-5 * noise
        rows, _ = searched(changed, sentences, beam, length)
        bests.append([ended(row[0]) for row in rows])
    together = list(enumerate(zip(*bests, strict=True)))
    return [number for number, (best, *others) in together if best and {best} == set(others)]


# --------------------------------------------------------------------------------- commands


@pytest.fixture(scope="module")
def generated(imported):
    search = shlex.split("--beam 4 --max-len-b 30 --batch-size 5 --print-alignment")
    return generate(Trained(imported / "bin", imported / "t5.pt", ""), *search)


def test_generate_says_what_transformers_says(generated, loaded, folder, theirs):
    sentences = encoded(folder)
    expected, scores = searched(theirs, sentences, 4, 31)
    dictionary = loaded[1].target_dictionary
    compared = without_near_ties(deepcopy(theirs).double(), sentences, 4, 31)
    assert len(compared) >= 4  # of 5
    for number in compared:
        hypothesis = hypotheses(generated)[number]
        said = dictionary.string(expected[number, 0] + 1, extra_symbols_to_ignore={1})
        assert hypothesis.text == said
        score = float(scores[number * 4]) / torch.tensor(2.0).log().item()
        assert hypothesis.score == pytest.approx(score, abs=1e-3)


def test_alignment_is_the_last_layer_s_attention(generated, loaded, theirs, folder):
    """Of a batch that has padding on the left; transformers gives the weights of every head."""
    dictionary = loaded[1].source_dictionary
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "spiece.model"))
    for number, hypothesis in hypotheses(generated).items():
        source = torch.tensor([pieces.encode(TEXT[number]) + [1]])
        said = dictionary.encode_line(hypothesis.text, add_if_not_exist=False)[None].long() - 1
        theirs.set_attn_implementation("eager")
        with torch.no_grad():
            out = theirs(input_ids=source, labels=said, output_attentions=True)
        weights = out.cross_attentions[-1][0].mean(dim=0)
        expected = weights[:-1, :-1].argmax(dim=1)  # of symbols, not the ends of sentences
        assert hypothesis.alignment.split() == [f"{s}-{t}" for t, s in enumerate(expected)]


@pytest.mark.full
def test_finetuning_begins_with_the_imported_model(imported, capsys, folder, tmp_path):
    capsys.readouterr()
    assert convert(folder, tmp_path) == 0
    flags = shlex.split(capsys.readouterr().out.partition("to train it: ")[2])
    common = [*COMMON, "--max-update", 2]
    trained = train(imported / "bin", tmp_path / "0", *common, *flags, "--lr", 0.0)
    old, new = (read_checkpoint(p)["model"] for p in (imported / "t5.pt", trained.checkpoint))
    assert old.keys() == new.keys()
    assert all(torch.equal(new[name], weight) for name, weight in old.items())
    smoothed = "--criterion label_smoothed_cross_entropy --label-smoothing 0.1".split()
    further = train(imported / "bin", tmp_path / "1", *common, *flags, *smoothed)
    first, second = (float(row["loss"]) for row in logged(further.log, "train_inner"))
    assert 0 < second < first < 20


# ----------------------------------------------------------------------------------- import


def test_symbols_are_in_the_tokenizer_s_order(loaded, folder):
    tokenizer = transformers.T5Tokenizer.from_pretrained(folder, extra_ids=EXTRA_IDS)
    dictionary = loaded[1].source_dictionary
    text = f"{TEXT[0]} <extra_id_0> {TEXT[1]} <extra_id_4> xx"
    numbers = tokenizer(text).input_ids
    symbols = tokenizer.convert_ids_to_tokens(numbers)
    assert [dictionary.index(symbol) for symbol in symbols] == [n + 1 for n in numbers]
    assert len(dictionary) == SYMBOLS + 1
    assert dictionary[-1] == f"madeupword{UNUSED - 1:04}"


@pytest.mark.parametrize(
    "layout", [full("pickled"), full("several files"), "float16 and one never read"]
)
def test_other_files_hold_the_same(layout, folder, theirs, imported, tmp_path):
    expected = read_checkpoint(imported / "t5.pt")["model"]
    for name in ("config.json", "spiece.model"):
        shutil.copy(folder / name, tmp_path)
    if layout == "several files":
        theirs.save_pretrained(tmp_path, max_shard_size="40KB")
        assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    else:
        weights = theirs.state_dict()
        if "float16" in layout:
            weights = {name: weight.half() for name, weight in weights.items()}
            weights[hf_t5.UNREAD] = torch.zeros(32, 2)
            expected = {name: weight.half().float() for name, weight in expected.items()}
        torch.save(weights, tmp_path / "pytorch_model.bin")
    assert convert(tmp_path, tmp_path) == 0
    actual = read_checkpoint(tmp_path / "t5.pt")["model"]
    assert actual.keys() == expected.keys()
    assert all(torch.equal(weight, expected[name]) for name, weight in actual.items())


def test_the_published_sizes():
    """config.json of T5-small, which says less than today's, is the architecture t5_small."""
    sizes = {"d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_heads": 8}
    config = {"model_type": "t5", "vocab_size": 32128, "decoder_start_token_id": 0, **sizes}
    imported = hf_t5.options(config)
    args = Namespace(share_all_embeddings=True)
    from fairseq.models import ARCH_CONFIG_REGISTRY

    ARCH_CONFIG_REGISTRY["t5_small"](args)
    assert imported == {name: getattr(args, name) for name in imported}


def refused(folder, tmp_path, capsys, *flags):
    """The sentence that an import ends with, which writes nothing."""
    capsys.readouterr()
    assert convert(folder, tmp_path, *flags) == 1
    assert not (tmp_path / "t5.pt").exists() and not (tmp_path / "dict.txt").exists()
    return capsys.readouterr().err.splitlines()[-1].removeprefix("memattn import-t5: error: ")


@pytest.fixture
def changed(folder, tmp_path):
    """A copy of the folder, and a function that changes its config.json."""
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)

    def change(**keys):
        config = json.loads((copy / "config.json").read_text()) | keys
        (copy / "config.json").write_text(json.dumps(config))

    return copy, change


def test_other_models_are_refused(folder, theirs):
    """And nothing of a size beyond the weights is made: it would fill the memory."""
    for key, value, message in (
        ("feed_forward_proj", "gated-gelu", "must be 'relu', as in T5 1.0, but is 'gated-gelu'"),
        ("tie_word_embeddings", False, "must be True, as in T5 1.0, but is False"),
        ("d_ff", None, "must be a number of at least 1, but is None"),
        *((key, 10**12, "must be at most the ") for key in (*hf_t5.SIZES, "num_decoder_layers")),
        ("vocab_size", 10**4000, "must be "),
        ("dropout_rate", float("nan"), "must be a number from 0 to 1, but is"),
    ):
        config = json.loads((folder / "config.json").read_text()) | {key: value}
        with pytest.raises(MemAttnError, match=f"^config.json: {key} {message}") as raised:
            hf_t5.options(config)
            check_sizes(config, hf_t5.sizes(theirs.state_dict()))
        assert len(str(raised.value)) < 200


def test_weights_that_do_not_fit_are_refused(changed, theirs, tmp_path, capsys):
    copy, change = changed
    change(num_decoder_layers=1)
    assert "which does not fit config.json" in refused(copy, tmp_path, capsys)
    change(num_decoder_layers=2)
    (copy / "model.safetensors").unlink()
    weights = dict(theirs.state_dict())
    weight = weights.pop("encoder.final_layer_norm.weight")
    for more, message in (
        ({}, "the weights lack `encoder.final_norm.weight`"),
        ({"lm_head.weight": weight}, "the weights shared.weight and lm_head.weight differ"),
    ):
        torch.save(weights | more, copy / "pytorch_model.bin")
        assert message in refused(copy, tmp_path, capsys)


def test_vocabularies_that_do_not_fit_are_refused(folder, changed, tmp_path, capsys):
    copy, _ = changed
    message = f"--extra-ids must be from 0 to {EXTRA_IDS + UNUSED}, config.json's vocab_size"
    assert refused(copy, tmp_path, capsys, "--extra-ids", "9").startswith(message)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT), model_prefix=str(copy / "spiece"), vocab_size=34
    )
    assert "but are -1, 2, 0" in refused(copy, tmp_path, capsys)
    with pytest.raises(MemAttnError, match="'<s>' twice"):
        hf_t5.symbols(["<pad>", "</s>", "<unk>", "<s>"], 0, 4)


# ---------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"dropout": 1.5}, "--dropout must be at least 0 and below 1, but is 1.5"),
        ({"target": "other"}, "--share-all-embeddings needs one dictionary for source and target"),
        ({"left_pad_target": True}, "--left-pad-target does not work with --arch t5"),
    ],
)
def test_mistakes(flags, message, loaded):
    dictionary = loaded[1].source_dictionary
    other = deepcopy(dictionary)
    other.add_symbol("other")
    task = SimpleNamespace(
        source_dictionary=dictionary,
        target_dictionary=other if flags.pop("target", None) else dictionary,
        cfg=SimpleNamespace(left_pad_target=flags.pop("left_pad_target", False)),
    )
    args = Namespace(share_all_embeddings=True, **flags)
    with pytest.raises(MemAttnError, match=f"^{message}"):
        T5.build_model(args, task)
