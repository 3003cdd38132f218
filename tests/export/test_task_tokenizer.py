"""The tokenizer that is exported gives the ids of the binarised data, and their text."""

import json
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from fairseq.data import Dictionary
from fairseq.data.data_utils import load_indexed_dataset
from full import full
from preparing import write_gpt2_files

from fairseq_memattn.data_prep.pipeline.pretrained_subwords import gpt2_subwords, segment
from fairseq_memattn.data_prep.pipeline.text_to_binary import Pipeline
from fairseq_memattn.data_prep.text import moses
from fairseq_memattn.data_prep.text.subword import Training
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.export.prepared import Prepared, find, given
from fairseq_memattn.export.task_tokenizer import suffixes, tokenizer
from fairseq_memattn.pieces import join_pieces
from fairseq_memattn.transformers.tokenizer import MemAttnTokenizer

LANGUAGES = ("en", "es")
PAIRS = [
    ("Thank you. The dog sleeps, & so on…", "Gracias. El perro duerme, & así…"),
    ("Ana's  house\u00a0is old.", "La casa de Ana  es\u00a0vieja."),
    ("A well-known dog & friend, isn't it?", "Un perro muy bien-educado, ¿no?"),
    (
        "We see <s> the </s> dog and the <unk> house ½.",
        "Vemos <s> el </s> perro y la <unk> casa ½.",
    ),
]
WORDS = (
    "the of and a to in was is he for with his on at by had not are but from or have they which "
    "one were all her she there would their been has when who will more out house river mountain "
    "morning brother answered between children remember water shepherd gathered evening kingdom "
    "thousand servant garden stone written harvest neighbour bread against covenant",
    "el de y la en que los se del las un por con una su para es al lo como más o pero sus le ha me "
    "si sin sobre este ya entre cuando todo esta ser son dos casa río montaña mañana hermano "
    "respondió niños recordar agua pastor reunió tarde reino mil siervo huerto piedra escrito "
    "cosecha vecino pan contra pacto corazón también después señor hijos pueblo",
)


def pairs(split: str) -> Sequence[tuple[str, ...]]:
    """Lines of words at random, other ones in each split, and lines that are difficult."""
    draw = random.Random(split)
    drawn = [
        tuple(
            " ".join(draw.choices(words.split(), k=draw.randint(3, 12))).capitalize() + "."
            for words in WORDS
        )
        for _ in range(150)
    ]
    return [*drawn, *PAIRS]


def written(folder: Path) -> Pipeline:
    """The text of a corpus."""
    pipeline = Pipeline(folder, LANGUAGES)
    for split in ("train", "valid", "test"):
        source = folder / f"{split}.given"
        folder.mkdir(exist_ok=True)
        source.touch()
        rows = pairs(split)
        pipeline.write_text(split, [source], lambda counts, rows=rows: rows, documents=False)
    return pipeline


def task_of(data: Path, **settings: object) -> SimpleNamespace:
    """What the tokenizer needs of fairseq's translation task."""
    cfg = SimpleNamespace(source_lang="en", target_lang="es", left_pad_source=True, **settings)
    dictionaries = [Dictionary.load(str(data / f"dict.{x}.txt")) for x in LANGUAGES]
    names = ("source_dictionary", "target_dictionary")
    return SimpleNamespace(cfg=cfg, **dict(zip(names, dictionaries, strict=True)))


def exported(task: SimpleNamespace, data: Path, folder: Path, kind: str = "seq2seq"):
    """The tokenizer as it is loaded again."""
    folder.mkdir()
    found = find(data, suffixes(task, kind == "seq2seq"))
    tokenizer(task, kind, found, folder).save_pretrained(folder / "saved")
    return MemAttnTokenizer.from_pretrained(folder / "saved"), found


def binarised(data: Path, split: str, language: str, dictionary: Dictionary) -> list[list[int]]:
    rows = load_indexed_dataset(str(data / f"{split}.en-es.{language}"), dictionary, "mmap")
    return [row.tolist() for row in rows]


def check_both_sides(pipeline: Pipeline, folder: Path, restored: dict[str, object]):
    """Every sentence of both sides has the ids of the data, and the target's text is theirs.

    restored: the function of data_prep from pieces to text
    """
    data = pipeline.folder / "bin"
    task = task_of(data)
    made, found = exported(task, data, folder)
    for split in ("valid", "test"):
        texts = [
            pipeline.path("text", split, x).read_text("utf-8").split("\n")[:-1] for x in LANGUAGES
        ]
        expected = [
            binarised(data, split, language, dictionary)
            for language, dictionary in zip(
                LANGUAGES, (task.source_dictionary, task.target_dictionary), strict=True
            )
        ]
        assert made(texts[0])["input_ids"] == expected[0]
        assert made(text_target=texts[1])["input_ids"] == expected[1]
        pieces = [task.target_dictionary.string(row) for row in expected[1]]
        back = made.batch_decode(expected[1], skip_special_tokens=True)
        assert back == [restored(line) for line in pieces]
    return made, found


@pytest.mark.parametrize(("joined", "size"), [(True, 150), (False, 150), (True, 330)])
def test_sentencepiece(joined: bool, size: int, tmp_path: Path):
    """The last one spells characters that it lacks."""
    pipeline = written(tmp_path / "corpus")
    training = Training(size, "_eos", byte_fallback=size > 256)
    model = pipeline.learn_sentencepiece(pipeline.paths("text", "train"), "spm", training)
    pipeline.apply_sentencepiece("text", model)
    pipeline.binarise(joined_dictionary=joined, model=model)
    made, found = check_both_sides(pipeline, tmp_path / "made", join_pieces)
    assert found.files() == [model]
    assert (made.target != made.source) == (not joined)
    rare = "\u9f98 \U0001f600"
    if size > 256:
        assert made.decode(made(rare)["input_ids"], skip_special_tokens=True) == rare
    assert (made.padding_side, made.tgt_padding_side) == ("left", "right")


@pytest.mark.parametrize("each", [True, full(False)])
def test_subword_nmt_with_moses(each: bool, tmp_path: Path):
    """Tokenised, truecased and segmented as IWSLT14 is."""
    pipeline = written(tmp_path / "corpus")
    pipeline.tokenise(printable_only=True)
    pipeline.truecase()
    train = dict(zip(LANGUAGES, pipeline.paths("truecased", "train"), strict=True))
    if each:
        codes = {x: pipeline.learn_bpe([path], f"codes.{x}", 200) for x, path in train.items()}
    else:
        codes = dict.fromkeys(LANGUAGES, pipeline.learn_bpe([*train.values()], "codes", 200))
    pipeline.apply_bpe("truecased", codes)
    pipeline.binarise(joined_dictionary=not each)
    restored = moses.detokeniser("es", capitalise=True)
    made, found = check_both_sides(pipeline, tmp_path / "made", restored)
    assert found.moses and found.printable_only and not found.lowercase
    names = {path.name for path in found.files()}
    assert names == {path.name for path in codes.values()} | {"truecase.en", "truecase.es"}


def test_gpt2(tmp_path: Path):
    """Pieces of RoBERTa, with <s> first; the mask takes the space before it."""
    files = write_gpt2_files(tmp_path / "corpus" / "archives")
    pipeline = written(tmp_path / "corpus")
    subwords = gpt2_subwords([files / name for name in ("encoder.json", "vocab.bpe", "dict.txt")])
    data = pipeline.folder / "bin"
    for split in ("train", "valid"):
        segment(pipeline, split, "en", subwords)
    dictionary = Dictionary.load(str(files / "dict.txt"))
    mask = dictionary.add_symbol("<mask>")
    task = SimpleNamespace(cfg=SimpleNamespace(), source_dictionary=dictionary)
    data.mkdir()
    made, found = exported(task, data, tmp_path / "made", kind="masked")
    texts = pipeline.path("text", "valid", "en").read_text("utf-8").split("\n")[:-1]
    pieces = pipeline.path("pieces", "valid", "en").read_text("utf-8").split("\n")[:-1]
    expected = [dictionary.encode_line(line, add_if_not_exist=False).tolist() for line in pieces]
    ids = made(texts)["input_ids"]
    assert ids == [[dictionary.bos(), *row] for row in expected]
    assert made.batch_decode(ids, skip_special_tokens=True) == texts
    pair = made("The house", "is")["input_ids"]
    assert pair == [0, *expected_ids(made, "The house"), 2, 2, *expected_ids(made, "is"), 2]
    assert made("The <mask> is")["input_ids"] == [
        0,
        *expected_ids(made, "The"),
        mask,
        *expected_ids(made, " is"),
        2,
    ]
    assert made.mask_token_id == mask
    assert made.decode(made("The <mask> is").input_ids) == "<s> The <mask> is </s>"


def expected_ids(made: MemAttnTokenizer, text: str) -> list[int]:
    return made(text, add_special_tokens=False)["input_ids"]


def test_words(tmp_path: Path):
    """A language model on WikiText: the ids of its words, after fairseq's first input."""
    pipeline = Pipeline(tmp_path / "corpus", ["en"])
    (tmp_path / "corpus").mkdir()
    text = ["", " = Title = ", "", "the <unk> house @-@ is old", "a house"]
    source = tmp_path / "corpus" / "given"
    source.write_text("\n".join(text))
    for split in ("train", "valid", "test"):
        rows = [(line,) for line in text]
        pipeline.write_text(split, [source], lambda counts, rows=rows: rows, documents=False)
    pipeline.binarise("text")
    data = pipeline.folder / "bin"
    dictionary = Dictionary.load(str(data / "dict.txt"))
    task = SimpleNamespace(args=SimpleNamespace(add_bos_token=False), source_dictionary=dictionary)
    made, found = exported(task, data, tmp_path / "made", kind="causal")
    rows = load_indexed_dataset(str(data / "valid"), dictionary, "mmap")
    ids = made(text)["input_ids"]
    assert ids == [[dictionary.eos(), *row.tolist()[:-1]] for row in rows]
    assert made.bos_token_id == dictionary.eos()
    assert made.padding_side == "left"
    assert made.decode(ids[3], skip_special_tokens=True) == text[3]


def test_windows(tmp_path: Path):
    """The separator that --task document_translation adds joins sentences, each segmented alone."""
    pipeline = written(tmp_path / "corpus")
    model = pipeline.learn_sentencepiece(
        pipeline.paths("text", "train"), "spm", Training(150, "_sep")
    )
    pipeline.apply_sentencepiece("text", model)
    pipeline.binarise()
    data = pipeline.folder / "bin"
    task = task_of(data, context_separator="_eos")
    for dictionary in (task.source_dictionary, task.target_dictionary):
        separator = dictionary.add_symbol("_eos")
    made, _ = exported(task, data, tmp_path / "made")
    first, second = (text for text, _ in PAIRS[:2])
    ids = made(f"{first} _eos {second}")["input_ids"]
    assert ids == [*expected_ids(made, first), separator, *made(second)["input_ids"]]
    assert separator not in made(f"{first}_eos {second}")["input_ids"]
    text = " ".join(made.decode(made(second).input_ids, skip_special_tokens=True).split())
    assert made.decode(ids, skip_special_tokens=True).endswith(f" _eos {text}")


def test_other_inputs_of_a_stage(tmp_path: Path):
    """As in `memattn prepare squad --spans`: a dictionary, and what other folders have."""
    pipeline = written(tmp_path / "corpus")
    data = pipeline.folder / "bin"
    model = pipeline.learn_sentencepiece(
        pipeline.paths("text", "train"), "spm", Training(150, "_eos")
    )
    (data / "records").mkdir(parents=True)
    others = [data / "records" / "train.jsonl", pipeline.folder / "pieces.txt"]
    for path, text in zip(others, ("{}", "the 5\n"), strict=True):
        path.write_text(text)
    for language, inputs in (("en", [*others, model]), ("es", others)):
        source, target = (pipeline.path(kind, "train", language) for kind in ("text", "pieces"))
        target.parent.mkdir(exist_ok=True)
        pipeline.stages.run(f"pieces-{language}", [source, *inputs], [target], target.touch)
    assert find(data, {"src": "en"}).files() == [model]
    with pytest.raises(MemAttnError, match="does not say what has segmented pieces/train.es"):
        find(data, {"src": "es"})


# Errors.


def test_a_model_that_was_changed_is_not_taken(tmp_path: Path):
    pipeline = written(tmp_path / "corpus")
    codes = pipeline.learn_bpe(pipeline.paths("text", "train"), "codes", 100)
    pipeline.apply_bpe("text", dict.fromkeys(LANGUAGES, codes))
    codes.write_text("#version: 0.2\na b\n")
    data = pipeline.folder / "bin"
    data.mkdir()
    with pytest.raises(MemAttnError, match="^--tokenizer must be given: .* segmented with codes"):
        find(data, {"src": "en", "tgt": "es"})


def test_the_segmentation_must_fit_the_dictionary(tmp_path: Path):
    pipeline = written(tmp_path)
    model = pipeline.learn_sentencepiece(
        pipeline.paths("text", "train"), "spm", Training(150, "_eos")
    )
    (tmp_path / "codes").write_text("#version: 0.2\na b\n")
    words = Counter(word for line in PAIRS for word in line[0].split())
    dictionary = Dictionary()
    for word, count in words.items():
        dictionary.add_symbol(word, count)
    task = SimpleNamespace(cfg=SimpleNamespace(), source_dictionary=dictionary)
    for file, said in ((model, r"\d+ of \d+, such as 'Thank', are not"), ("codes", "none ends in")):
        with pytest.raises(MemAttnError, match=f"is not the segmentation of the data: .*{said}"):
            tokenizer(task, "masked", given([tmp_path / file], moses=False), tmp_path)


@pytest.mark.parametrize(
    ("first", "told"),
    [
        ({"inputs": {"text/train.en": ""}, "outputs": {"pieces/train.en": ""}}, "does not say"),
        ({"inputs": {}, "outputs": 5}, "a.json: not a record of `memattn prepare`"),
        ({"inputs": {"": ""}, "outputs": {"pieces/train.en": ""}}, "a.json: not a record"),
        ({"inputs": {"/x": ""}, "outputs": {"pieces/train.en": ""}}, "a.json: not a record"),
        ([], "a.json: not a record"),
    ],
)
def test_records_that_no_preparation_writes(first, told, tmp_path):
    """The first two name each other."""
    (tmp_path / "stages").mkdir()
    other = {"inputs": {"pieces/train.en": ""}, "outputs": {"text/train.en": ""}}
    for name, record in (("a", first), ("b", other)):
        (tmp_path / "stages" / f"{name}.json").write_text(json.dumps(record))
    with pytest.raises(MemAttnError, match=told):
        Prepared(tmp_path).segmented({"src": "en"})
