"""`memattn import-transformers` of Marian, M2M-100, NLLB and mBART-50, against transformers."""

import json
import re
from argparse import Namespace
from types import SimpleNamespace

import pytest
import tiny_translators as tiny
import torch
import transformers
from fairseq.checkpoint_utils import load_model_ensemble_and_task
from fairseq.data import Dictionary
from fairseq.data.data_utils import collate_tokens
from full import full
from harness import COMMON, flags_of, generate, hypotheses, train

from fairseq_memattn import cli
from fairseq_memattn.cli.shared import translator_vocabularies
from fairseq_memattn.cli.shared.hf_checkpoint import checkpoint
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.host.checkpoints import read_checkpoint
from fairseq_memattn.models import hf_translators
from fairseq_memattn.models.abc_transformer import PretrainedTransformer
from fairseq_memattn.pieces import join_pieces
from fairseq_memattn.transformers.document_translator import DocumentTranslator
from fairseq_memattn.transformers.pieces import SentencePieces

UNSHARED = {"share_encoder_decoder_embeddings": False, "activation_function": "gelu"}
UNSCALED = {"scale_embedding": False, "activation_function": "relu", "d_model": 30}
MARIAN = [("marian", {}), full(("marian", UNSHARED)), full(("marian", UNSCALED))]
KINDS = [
    *MARIAN,
    full(("nllb", {})),
    full(("m2m", {"scale_embedding": False})),
    full(("mbart", {})),
]


@pytest.fixture(scope="module", params=KINDS, ids=str)
def both(request, tmp_path_factory):
    """A model of transformers, its tokenizer, ours with its task, and the rows of our symbols."""
    (kind, changes), folder = request.param, tmp_path_factory.mktemp("translator")
    theirs = tiny.translator(kind, folder / "hf", **changes)
    assert tiny.imported(kind, folder / "hf", folder) == 0
    models, _, task = load_model_ensemble_and_task(
        [str(folder / "model.pt")], arg_overrides={"data": str(folder / "dictionaries")}
    )
    config = json.loads((folder / "hf/config.json").read_text())
    words = tiny.tokenizer(kind, folder / "hf")
    vocabularies = [words.get_vocab(), getattr(words, "target_encoder", words.get_vocab())]
    sizes = [config["vocab_size"], config.get("decoder_vocab_size", config["vocab_size"])]
    rows = [
        hf_translators.symbols(ids, config, size)[1]
        for ids, size in zip(vocabularies, sizes, strict=True)
    ]
    return SimpleNamespace(
        **{"kind": kind, "folder": folder, "theirs": theirs, "words": words, "task": task},
        **{"rows": rows, "ours": models[0].eval()},
    )


def ours_of(both, side: int, sentences: list[list[int]]) -> list[torch.Tensor]:
    """Our ids for those of transformers; of equal rows the last one, since `<s>` has padding's."""
    back = {int(row): number for number, row in enumerate(both.rows[side])}
    return [torch.tensor([back[number] for number in one]) for one in sentences]


@pytest.mark.parametrize("left", [True, False], ids=["left", "right"])
def test_logits(both, left):
    """Of sentences of all lengths, padded on either side in the encoder."""
    texts, others = [*tiny.TEXT, tiny.UNKNOWN], [*tiny.OTHER, tiny.UNKNOWN]
    batch = both.words(texts, text_target=others, padding=True, return_tensors="pt")
    labels = batch.pop("labels")
    start = torch.full_like(labels[:, :1], both.theirs.config.decoder_start_token_id)
    inputs = torch.cat([start, labels[:, :-1]], dim=1)
    with torch.no_grad():
        expected = both.theirs(**batch, decoder_input_ids=inputs).logits[..., both.rows[1]]
    pad, eos = both.task.source_dictionary.pad(), both.task.source_dictionary.eos()
    sources = ours_of(both, 0, both.words(texts).input_ids)
    assert any(both.task.source_dictionary.unk() in one for one in sources)
    targets = ours_of(both, 1, both.words(text_target=others).input_ids)
    before = [torch.cat([torch.tensor([eos]), one[:-1]]) for one in targets]
    with torch.no_grad():
        logits = both.ours(
            collate_tokens(sources, pad, left_pad=left),
            torch.tensor([len(one) for one in sources]),
            collate_tokens(before, pad),
        )[0]
    for row, one in enumerate(targets):
        ours, theirs = (x[row, : len(one), both.kind == "marian" :] for x in (logits, expected))
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)
    if both.kind == "marian":
        assert logits.softmax(-1)[..., 0].max() < 1e-30


def translated(both, power: int = 1) -> dict[int, dict]:
    """The best hypothesis of each text, in the way of fairseq-interactive."""
    task, symbols = both.task, both.task.source_dictionary
    source, _ = tiny.LANGUAGES[both.kind]
    pieces = SentencePieces(both.folder / f"dictionaries/spm.{source}.model")
    lines = [
        symbols.encode_line(" ".join(pieces.split(line)), add_if_not_exist=False).long()
        for line in [*tiny.TEXT, tiny.UNKNOWN]
    ]
    dataset = task.build_dataset_for_inference(lines, [len(line) for line in lines])
    batches = task.get_batch_iterator(dataset, max_tokens=99, max_positions=(90, 90))
    options = Namespace(beam=3, max_len_a=0, max_len_b=50, lenpen=power)
    generator = task.build_generator([both.ours], options)
    found = {}
    for batch in batches.next_epoch_itr(shuffle=False):
        hypotheses = task.inference_step(generator, [both.ours], batch)
        found |= {n: best for n, (best, *_) in zip(batch["id"].tolist(), hypotheses, strict=True)}
    return found


def test_beams(both):
    """From raw text: the translations of transformers, with their scores.

    transformers divides a score by a length that counts the language, which a power of 0 hides.
    """
    power = int(both.kind == "marian")
    found = translated(both, power)
    for number, line in enumerate([*tiny.TEXT, tiny.UNKNOWN]):
        theirs = both.theirs.generate(
            **both.words(line, return_tensors="pt"),
            **{"num_beams": 3, "early_stopping": True, "min_new_tokens": 1, "max_new_tokens": 51},
            **{"length_penalty": power, "return_dict_in_generate": True, "output_scores": True},
            **tiny.search(both.kind, both.theirs, both.words),
        )
        best = found[number]
        expected = theirs.sequences[0, 1 if power else 2 :]
        assert both.rows[1][best["tokens"]].tolist() == expected.tolist()
        torch.testing.assert_close(best["score"], theirs.sequences_scores[0], rtol=0, atol=1e-5)
    assert len({len(one["tokens"]) for one in found.values()}) > 1


@pytest.mark.full
def test_exported(both):
    """The project's own model, with the tokenizer, translates raw text as the checkpoint does."""
    data, output = both.folder / "dictionaries", both.folder / "exported"
    languages = tiny.LANGUAGES[both.kind]
    models = [str(data / f"spm.{language}.model") for language in languages]
    argv = ["--path", both.folder / "model.pt", "--data", data, "--output", output, "--tokenizer"]
    assert cli.main(["export", *map(str, argv), *models]) == 0
    translator = DocumentTranslator.from_pretrained(output)
    found = translator.translate([[*tiny.TEXT, tiny.UNKNOWN]], beam=3, max_len_b=50)
    texts = []
    for number in range(len(tiny.TEXT) + 1):
        best = translated(both)[number]["tokens"]
        texts.append(join_pieces(both.task.target_dictionary.string(best)))
    assert found == [texts]


@pytest.mark.full
def test_back(both):
    """The folder that transformers reads has the same weights, tokens and translations."""
    data, output = both.folder / "dictionaries", both.folder / "original"
    argv = ["--path", both.folder / "model.pt", "--data", data, "--output", output, "--original"]
    models = [data / f"spm.{language}.model" for language in tiny.LANGUAGES[both.kind]]
    assert cli.main(["export", *map(str, [*argv, "--tokenizer", *models])]) == 0
    again = type(both.theirs).from_pretrained(output).eval()
    assert again.config.to_diff_dict() == both.theirs.config.to_diff_dict()
    weights = again.state_dict()
    for name, weight in both.theirs.state_dict().items():
        assert torch.equal(weight, weights[name]), name
    words = transformers.AutoTokenizer.from_pretrained(output)
    for line in [*tiny.TEXT, tiny.UNKNOWN]:
        assert words(line, text_target=line) == both.words(line, text_target=line)
        given = {**words(line, return_tensors="pt"), "num_beams": 3, "max_length": 50}
        searched = tiny.search(both.kind, both.theirs, both.words)
        assert torch.equal(again.generate(**given), both.theirs.generate(**given, **searched))
    if both.kind != "marian":  # which gets a separator by convert --context-separator
        first, second = (both.words(line).input_ids for line in tiny.TEXT[:2])
        both_ids = [*first[:-1], again.config.vocab_size - 1, *second[1:]]
        assert words(" _eos ".join(tiny.TEXT[:2])).input_ids == both_ids
    (both.folder / "again").mkdir(exist_ok=True)
    assert tiny.imported(both.kind, output, both.folder / "again") == 0
    once, twice = (read_checkpoint(x / "model.pt") for x in (both.folder, both.folder / "again"))
    assert once["model"].keys() == twice["model"].keys()
    for name, weight in once["model"].items():
        assert torch.equal(weight[1:], twice["model"][name][1:]), name  # <s> has no embedding


@pytest.mark.full
@pytest.mark.parametrize("kind", ["marian", "nllb"])
def test_documents(kind, tmp_path, capsys):
    """Fine-tuning with context and a bounded memory, by the commands, and the exported model."""
    tiny.translator(kind, tmp_path / "hf")
    assert tiny.imported(kind, tmp_path / "hf", tmp_path) == 0
    languages, words = tiny.LANGUAGES[kind], tmp_path / "dictionaries"
    for split in ("train", "valid", "test"):
        texts = dict(zip(languages, (tiny.TEXT, tiny.OTHER), strict=True))
        for suffix, lines in {**texts, "docid": ["a", "a", "a", "b", "b"]}.items():
            (tmp_path / f"{split}.{suffix}").write_text("".join(f"{x}\n" for x in lines))
    splits = [f"{split}={tmp_path / split}" for split in ("train", "valid", "test")]
    given = ["--text", *splits, "--langs", *languages, "--output", tmp_path / "data"]
    models = [words / f"spm.{one}.model" for one in languages]
    given += ["--sentencepiece-model", *models, "--dictionary", words / f"dict.{languages[0]}.txt"]
    assert cli.main(["prepare", "own-corpus", *map(str, given)]) == 0
    data, separator = tmp_path / "data/bin", ["--context-separator", "_eos"]
    flags = "--flags=--abc-cross-slots 4 --abc-causal-slots 3"
    argv = [data, "--path", tmp_path / "model.pt", "--output", tmp_path / "converted.pt", flags]
    argv += ["--arch", "abc_mlp_transformer", *separator[: 2 * (kind == "marian")]]
    capsys.readouterr()
    assert cli.main(["convert", *map(str, argv)]) == 0
    contexts = ["--source-context", 2, "--target-context", 2]
    shown = flags_of(capsys.readouterr().out)
    assert "--criterion" not in shown  # the import had no training
    told = [*COMMON, *shown, *contexts, "--max-update", 3]
    trained = train(data, tmp_path / "trained", *told)
    task = ["--task", "document_translation", *contexts]
    if kind == "nllb":
        task += ["--source-token", languages[0], "--target-token", languages[1]]
    search = ["--beam", 3, "--max-len-b", 30, "--batch-size", 2]
    found = hypotheses(generate(trained, *task, *search))
    exported = ["--path", trained.checkpoint, "--data", data, "--output", tmp_path / "exported"]
    assert cli.main(["export", *map(str, exported), "--original"]) == 1
    assert "without --original it is exported in this project's format" in capsys.readouterr().err
    assert cli.main(["export", *map(str, exported), "--check", "2"]) == 0
    translator = DocumentTranslator.from_pretrained(tmp_path / "exported")
    texts = [join_pieces(one.text) for one in found.values()]
    documents = [tiny.TEXT[:3], tiny.TEXT[3:]]
    assert translator.translate(documents, beam=3, max_len_b=30) == [texts[:3], texts[3:]]
    assert len({*texts}) > 1


LARGE = {"d_model": 1024, "encoder_ffn_dim": 4096, "decoder_ffn_dim": 4096}
LARGE |= {"encoder_attention_heads": 16, "decoder_attention_heads": 16, "scale_embedding": True}
LARGE |= {"encoder_layers": 12, "decoder_layers": 12, "max_position_embeddings": 1024}
OPUS = {"d_model": 512, "encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048, "vocab_size": 58101}
OPUS |= {"encoder_attention_heads": 8, "decoder_attention_heads": 8, "scale_embedding": True}
OPUS |= {"encoder_layers": 6, "decoder_layers": 6, "max_position_embeddings": 512}


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("Marian", OPUS),  # opus-mt-en-de
        ("M2M100", LARGE | {"vocab_size": 128112}),  # m2m100_418M
        ("M2M100", LARGE | {"vocab_size": 256206}),  # nllb-200-distilled-600M
        ("MBart", LARGE | {"vocab_size": 250054, "decoder_start_token_id": 2}),  # mbart-large-50
    ],
)
def test_published_sizes(name, sizes):
    """Every weight of the model has a place of its shape in ours; nothing is allocated."""
    config = getattr(transformers, f"{name}Config")(**sizes)
    kind = "MTModel" if name == "Marian" else "ForConditionalGeneration"
    with torch.device("meta"):
        model = getattr(transformers, f"{name}{kind}")(config)
    # As saved: without Marian's positions, and with one table.
    left_out = "final_logits_bias|lm_head|embed_tokens"
    left_out += "|embed_positions" if name == "Marian" else ""
    saved = {key: x for key, x in model.state_dict().items() if not re.search(left_out, key)}
    settings = config.to_dict()
    rows = torch.arange(sizes["vocab_size"])
    settings["model_type"] = config.model_type
    flags = hf_translators.options(settings, name == "Marian")
    weights = hf_translators.weights(saved, settings, [rows, rows])
    words = Dictionary()
    words.symbols += [""] * (sizes["vocab_size"] - len(words))
    flags += ["--task", "translation"]
    assert checkpoint(PretrainedTransformer, flags, weights, words, words)["model"] == weights


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model_type": "bart"}, "model_type must be one of marian, m2m_100, mbart, as the folder"),
        ({"normalize_before": True}, "normalize_before must be False, as in Marian, but is True"),
        ({"decoder_start_token_id": 0}, "decoder_start_token_id must be pad_token_id 9, as in"),
        ({"activation_function": "mish"}, "activation_function must be one of relu, gelu, tanh,"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings must be True, as in Marian, but is"),
    ],
)
def test_other_configurations(changes, said):
    config = tiny.SIZES | {"model_type": "marian", "vocab_size": 10, "eos_token_id": 0}
    config |= {"pad_token_id": 9, "decoder_start_token_id": 9, "activation_function": "swish"}
    with pytest.raises(MemAttnError, match=re.escape(f"config.json: {said}")):
        hf_translators.options(config | changes, True)


def test_files_of_another_translator(tmp_path):
    (tmp_path / "tokenizer_config.json").write_text('{"source_lang": "en", "target_lang": "de"}')
    (tmp_path / "source.spm").touch()
    for languages, said in {
        ("de", "en"): "tokenizer_config.json: the model translates from en to de, and not from de",
        (None, None): "source.spm: not a SentencePiece model",
    }.items():
        with pytest.raises(MemAttnError, match=said):
            translator_vocabularies.read(tmp_path, {"model_type": "marian"}, languages)
