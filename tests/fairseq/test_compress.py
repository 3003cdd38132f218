"""`memattn compress` and `decompress`: documents to a store and back."""

import hashlib
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from corpora import numbered_words
from fairseq import options
from fairseq.data.indexed_dataset import make_builder
from fairseq.models import ARCH_MODEL_REGISTRY
from full import full
from harness import environment, run_on
from torch.testing import assert_close

from fairseq_memattn.cli import main
from fairseq_memattn.cli.shared.hf_checkpoint import checkpoint
from fairseq_memattn.compression.corpus import Corpus, Piece, batches, documents_of
from fairseq_memattn.compression.shard import Damaged, Header, Record, Shard, mark
from fairseq_memattn.compression.store import Store, faults, open_for_writing
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.tasks.inference.compression import record_of

WORDS, LIMIT = 20, 24
LINES = [7, 3, 1, 12, 23, 1, 1, 9, 2, 15]  # tokens, eos included
FLAGS = (
    "--encoder-layers 3 --encoder-embed-dim 16 --encoder-ffn-embed-dim 24 "
    "--encoder-attention-heads 2"
).split()
GMAT = ["--gmat-chunk=4", "--gmat-memory=3"]
COMPRESSES = [*GMAT, "--gmat-compress-after=1", "--gmat-memory-layers=1"]
OLD_SCHEMA = (
    "CREATE TABLE header (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE records (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, length INTEGER "
    "NOT NULL, source BLOB NOT NULL, checksum BLOB NOT NULL, vectors BLOB NOT NULL)",
)
HEADER = Header("model", "dictionary", vectors=2, size=3, dtype="float32")


def save(folder, name="model.pt", arch="gmat_bert", flags=COMPRESSES, seed=1):
    """A model of random weights, as fairseq-train saves it, and its path."""
    words = numbered_words(WORDS)
    if "--task=translation" not in flags:
        words.add_symbol("<mask>")
        flags = [*flags, "--task=masked_lm", f"--tokens-per-sample={LIMIT}"]
    flags = [*FLAGS, "--arch", arch, *flags]
    args = options.parse_args_and_arch(options.get_training_parser(), ["data", *flags])
    task = SimpleNamespace(
        source_dictionary=words, target_dictionary=words, max_positions=lambda: LIMIT
    )
    torch.manual_seed(seed)
    model = ARCH_MODEL_REGISTRY[arch].build_model(args, task).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.2 * torch.randn_like(weight)
    state = checkpoint(type(model), flags, model.state_dict(), words, device="cpu")
    torch.save(state, folder / name)
    return model, folder / name


def binarise(prefix, lengths, seed=0):
    generator = torch.Generator().manual_seed(seed)
    builder = make_builder(f"{prefix}.bin", "mmap", WORDS + 4)
    lines = []
    for length in lengths:
        words = torch.randint(4, 4 + WORDS, (length - 1,), generator=generator)
        lines.append(torch.cat([words, torch.tensor([2])]))
        builder.add_item(lines[-1])
    builder.finalize(f"{prefix}.idx")
    return lines


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with `bin`, model.pt, and a store of the test set."""
    folder = tmp_path_factory.mktemp("compressed")
    (folder / "bin").mkdir()
    numbered_words(WORDS).save(str(folder / "bin" / "dict.txt"))
    lines = binarise(folder / "bin" / "test", LINES)
    binarise(folder / "bin" / "valid", [4, 5, 6], seed=3)
    model, _ = save(folder)
    ours(folder, folder / "store")
    return folder, model, lines


def ours(folder, store, *flags, path="model.pt", status=0):
    data = ["--path", str(folder / path), "--output", str(store), "--max-tokens", "40", "--cpu"]
    assert main(["compress", str(folder / "bin"), *data, *flags]) == status


def unpacked(folder, store, output, *flags):
    model = ["--path", str(folder / "model.pt"), "--output", str(output), "--cpu"]
    assert main(["decompress", str(store), *model, "--max-tokens", "60", *flags]) == 0
    return output


def content(store):
    return {id: Store(store)[id] for id in Store(store).ids()}


def same(store, other):
    """Bit for bit."""
    a, b = content(store), content(other)
    assert list(a) == list(b)
    for id in a:
        assert (a[id].length, a[id].source) == (b[id].length, b[id].source)
        assert np.array_equal(a[id].vectors, b[id].vectors)


@torch.no_grad()
def whole(model, *lines):
    """(L, E) of the whole encoder."""
    return model.encoder.extract_features(torch.cat([torch.tensor([0]), *lines])[None])[0][0]


@pytest.mark.parametrize("dtype, atol", [("float32", 1e-5), full("float16", 2e-2)])
def test_decompressed_is_the_whole_encoder(made, tmp_path, dtype, atol):
    folder, model, lines = made
    ours(folder, tmp_path / "s", "--dtype", dtype)
    assert Store(tmp_path / "s")["test-3"].vectors.dtype == dtype
    found = np.load(unpacked(folder, tmp_path / "s", tmp_path / "f.npz"))
    assert list(found) == [f"test-{number}" for number in range(len(lines))]
    for line, features in zip(lines, found.values(), strict=True):
        assert_close(torch.from_numpy(features), whole(model, line), rtol=0, atol=atol)


def test_tokens_of_chosen_documents(made, tmp_path):
    folder, model, lines = made
    store, words = folder / "store", [*numbered_words(WORDS).symbols, "<mask>"]
    flags = ["--tokens", "--ids", "test-4", "test-0"]
    text = unpacked(folder, store, tmp_path / "t.txt", *flags).read_text(encoding="utf-8")
    for line, number in zip(text.splitlines(), (4, 0), strict=True):
        with torch.no_grad():
            filled = model.encoder.lm_head(whole(model, lines[number])).argmax(dim=1)
        assert line == f"test-{number}\t" + " ".join(words[token] for token in filled)


class Lines(list):
    """A data set of lines, which counts those that are read."""

    read = 0

    @property
    def sizes(self):
        return np.array([len(line) for line in self])

    def __getitem__(self, line):
        self.read += 1
        return super().__getitem__(line)


@pytest.mark.parametrize("bos", [None, 0])
@pytest.mark.parametrize("limit", [3, 40])
def test_pieces_read_their_own_lines(bos, limit):
    lines = Lines(torch.arange(3 * n, 3 * n + 1 + n % 3) + 1 for n in range(12))
    corpus = Corpus(lines, [("a", range(1, 4)), ("b", range(4, 12))], bos)
    pieces = corpus.pieces(limit, split=True)
    lines.read = 0
    found = [corpus.tokens(piece) for piece in pieces]
    assert [len(text) for text in found] == [piece.length for piece in pieces]
    assert lines.read <= len(lines) + len(pieces)
    begins = 0 if bos is None else 1
    assert all(text[:begins].tolist() == [bos] * begins for text in found)
    together = torch.cat([text[begins:] for text in found])
    assert torch.equal(together, torch.cat(list(lines)[1:]))


def test_documents_of_several_lines_and_pieces(made, tmp_path):
    folder, model, lines = made
    ours(folder, tmp_path / "s", "--documents", "blank-lines", status=1)
    assert not (tmp_path / "s").exists()
    ours(folder, tmp_path / "s", "--documents", "blank-lines", "--split")
    found = np.load(unpacked(folder, tmp_path / "s", tmp_path / "f.npz"))
    document = torch.cat(lines[3:5])
    last = torch.cat(lines[7:])
    expected = {
        "test-0": torch.cat(lines[:2]),
        "test-3#0": document[:23],
        "test-3#1": document[23:],
    }
    expected |= {"test-7#0": last[:23], "test-7#1": last[23:]}
    assert list(found) == list(expected)
    for id, tokens in expected.items():
        assert_close(torch.from_numpy(found[id]), whole(model, tokens), rtol=0, atol=1e-5)


def test_sources_of_a_translator(tmp_path):
    """They have no <s>, and are padded on the left in training, which found their languages."""
    for language in "ab":
        numbered_words(WORDS).save(str(tmp_path / f"dict.{language}.txt"))
    lines = binarise(tmp_path / "test.a-b.a", [5, 9])
    flags = ["--task=translation", "--max-source-positions=24"]
    model, path = save(tmp_path, arch="gmat_transformer", flags=[*COMPRESSES, *flags])
    store, output = tmp_path / "s", tmp_path / "f.npz"
    flags = ["--path", str(path), "--cpu", "--output"]
    assert main(["compress", str(tmp_path), *flags, str(store)]) == 0
    assert main(["decompress", str(store), *flags, str(output)]) == 0
    for line, features in zip(lines, np.load(output).values(), strict=True):
        with torch.no_grad():
            expected = model.encoder(line[None])["encoder_out"][0][:, 0]
        assert_close(torch.from_numpy(features), expected, rtol=0, atol=1e-5)
    assert main(["decompress", str(store), *flags, str(output), "--tokens"]) == 1


def test_documents_by_ids(tmp_path):
    docids = tmp_path / "test.docids"
    docids.write_text("a\na\nb\n", encoding="utf-8")
    found = documents_of("ids", "test", np.array([3, 4, 5]), docids)
    assert found == [("a", range(0, 2)), ("b", range(2, 3))]


def test_a_subset_is_not_stored_by_ids_and_without(made, tmp_path, capsys):
    folder = made[0]
    (tmp_path / "bin").mkdir()
    numbered_words(WORDS).save(str(tmp_path / "bin" / "dict.txt"))
    binarise(tmp_path / "bin" / "test", [4, 5, 6])
    (tmp_path / "bin" / "test.docids").write_text("a\na\nb\n", encoding="utf-8")
    for documents, status in (("ids", 0), ("lines", 1), ("ids", 0)):
        flags = ["--documents", documents]
        ours(tmp_path, tmp_path / "s", *flags, path=folder / "model.pt", status=status)
    assert "already has --subset test by --documents ids" in capsys.readouterr().err


@pytest.mark.full
def test_killed_within_a_batch_and_resumed(made, tmp_path, capsys):
    """A real SIGKILL, after two of the four records of a batch have been inserted."""
    folder, store = made[0], tmp_path / "s"
    script = f"""
import os, signal
from fairseq_memattn.cli import main
from fairseq_memattn.compression import shard
checksum = shard.checksum
def killing(number, id, *rest):
    if id == "test-7":
        os.kill(os.getpid(), signal.SIGKILL)
    return checksum(number, id, *rest)
shard.checksum = killing
main(["compress", {str(folder / "bin")!r}, "--path", {str(folder / "model.pt")!r}, "--output",
      {str(store)!r}, "--max-tokens", "40", "--cpu"])
"""
    root = Path(__file__).parents[2]
    # As many threads as here, for the same bits.
    env = environment() | {"OMP_NUM_THREADS": str(torch.get_num_threads())}
    done = subprocess.run([sys.executable, "-c", script], cwd=root, env=env)
    assert done.returncode == -signal.SIGKILL
    assert list(content(store)) == [f"test-{number}" for number in range(5)]
    ours(folder, store)
    assert "; 5 were there already" in capsys.readouterr().out
    same(store, folder / "store")


@pytest.mark.full
def test_processes_at_once_are_one(made, tmp_path):
    folder, store = made[0], tmp_path / "s"
    data = ["--path", folder / "model.pt", "--output", store, "--max-tokens", 40, "--cpu"]
    run_on(2, tmp_path / "streams", "memattn", "compress", folder / "bin", *data)
    shards = [[id for id, _ in shard.lengths()] for shard in Store(store).shards]
    one = content(folder / "store")
    assert len(shards) == 2 and all(shards) and sum(shards, []) == list(one)
    for id, record in content(store).items():
        assert (record.length, record.source) == (one[id].length, one[id].source)
        np.testing.assert_allclose(record.vectors, one[id].vectors, rtol=0, atol=1e-5)
    # Another number of processes finds what these have written.
    ours(folder, store)
    assert list(content(store)) == list(one)


def test_what_does_not_belong_together(made, tmp_path, capsys, monkeypatch):
    folder, store = made[0], made[0] / "store"
    before = content(store)
    save(folder, "other.pt", seed=2)
    save(folder, "whole.pt", flags=GMAT)
    binarise(tmp_path / "test", LINES, seed=9)
    numbered_words(WORDS).save(str(tmp_path / "dict.txt"))
    for path, flags, message in (
        ("other.pt", [], "was made with another model: its fingerprint is "),
        ("whole.pt", [], "(architecture gmat_bert) has no compressing encoder"),
        ("model.pt", ["--dtype", "float16"], "`dtype` must be float16, but is float32; add to it"),
        ("model.pt", ["--max-length", "40000"], "at most the 32768 positions of the model, but is"),
    ):
        ours(folder, store, *flags, path=path, status=1)
        assert message in capsys.readouterr().err
    flags = ["--path", str(folder / "model.pt"), "--output", str(store), "--cpu"]
    assert main(["compress", str(tmp_path), *flags]) == 1
    assert "already has a record 'test-0' with another text" in capsys.readouterr().err
    flags = ["--path", str(folder / "other.pt"), "--output", str(tmp_path / "f.npz"), "--cpu"]
    assert main(["decompress", str(store), *flags]) == 1
    assert "was made with another model" in capsys.readouterr().err
    # What would be a new shard does not stay behind.
    monkeypatch.setenv("RANK", "1"), monkeypatch.setenv("WORLD_SIZE", "2")
    ours(folder, store, path="other.pt", status=1)
    assert len(list(store.glob("*.sqlite"))) == 1
    shutil.copytree(store, tmp_path / "s")
    words = (store / "dict.txt").read_text().splitlines(keepends=True)
    (tmp_path / "s" / "dict.txt").write_text("".join(words[::-1]))
    flags = ["--path", str(folder / "model.pt"), "--output", str(tmp_path / "f.npz"), "--cpu"]
    assert main(["decompress", str(tmp_path / "s"), *flags]) == 1
    assert "was made with another dictionary" in capsys.readouterr().err
    assert list(content(store)) == list(before)


def test_a_damaged_record_is_not_decompressed_and_is_made_again(made, tmp_path, capsys):
    folder, store = made[0], tmp_path / "s"
    ours(folder, store)
    (file,) = store.glob("*.sqlite")
    before = content(store)
    vectors = Store(store)["test-4"].vectors.tobytes()
    raw = bytearray(file.read_bytes())
    raw[raw.index(vectors) + 5] ^= 1
    file.write_bytes(raw)
    flags = ["--path", str(folder / "model.pt"), "--output", str(tmp_path / "f.npz"), "--cpu"]
    for command in (["--check"], flags):
        assert main(["decompress", str(store), *command]) == 1
        assert f"{file}: the record 'test-4' is damaged" in capsys.readouterr().err
    assert not list(tmp_path.glob("f.npz*"))
    assert main(["decompress", str(store), "--check", "--drop-damaged"]) == 0
    assert "9 records are intact; 1 fault" in capsys.readouterr().out
    made_again(folder, store, before)


def made_again(folder, store, before):
    ours(folder, store)
    after = content(store)
    assert before.keys() == after.keys()
    assert all(np.array_equal(before[id].vectors, after[id].vectors) for id in before)


@pytest.mark.parametrize(
    "digit, told, intact",
    [(b"x", "the record 'test-x' is damaged", 9), (b"7", "two records have the same id", 0)],
)
def test_a_damaged_id_costs_its_record(made, tmp_path, capsys, digit, told, intact):
    """The index of ids does not have it any more. Of two with the same id, the whole file."""
    folder, store = made[0], tmp_path / "s"
    ours(folder, store)
    (file,) = store.glob("*.sqlite")
    before = content(store)
    raw = bytearray(file.read_bytes())
    places = [at for at in range(len(raw)) if raw.startswith(b"test-4", at)]
    row = next(at for at in places if len(raw[at:].split(b"test-", 2)[1]) > 100)
    raw[row + 5 : row + 6] = digit
    file.write_bytes(raw)
    assert main(["decompress", str(store), "--check"]) == 1
    assert f"{file} is damaged: " in capsys.readouterr().err
    assert main(["decompress", str(store), "--check", "--drop-damaged"]) == 0
    said = capsys.readouterr()
    assert told in said.err and f"{intact} records are intact" in said.out
    made_again(folder, store, before)


@pytest.mark.parametrize(
    "loss, told",
    [
        full(lambda file: file.unlink(), "is missing"),
        full(lambda file: file.write_bytes(b""), "has lost its records"),
        (lambda file: file.write_bytes(file.read_bytes()[:5000]), "cannot be used as a store: "),
    ],
)
def test_a_lost_file_does_not_go_unnoticed(made, tmp_path, capsys, monkeypatch, loss, told):
    folder, store = made[0], tmp_path / "s"
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in "01":
        monkeypatch.setenv("RANK", rank)
        ours(folder, store)
    monkeypatch.delenv("WORLD_SIZE"), monkeypatch.delenv("RANK")
    before = content(store)
    file = store / "shard-00001.sqlite"
    loss(file)
    for command in (["--check"], ["--list"]):
        assert main(["decompress", str(store), *command]) == 1
        assert f"{file} {told}" in capsys.readouterr().err
    ours(folder, store, status=1)
    assert main(["decompress", str(store), "--check", "--drop-damaged"]) == 0
    ours(folder, store)
    assert content(store).keys() == before.keys()
    assert main(["decompress", str(store), "--check"]) == 0


def test_the_documents_are_listed(made, capsys):
    capsys.readouterr()
    assert main(["decompress", str(made[0] / "store"), "--list"]) == 0
    rows = [row.split("\t") for row in capsys.readouterr().out.splitlines()]
    assert rows == [[id, str(record.length)] for id, record in content(made[0] / "store").items()]


def records(*ids, length=4):
    numbers = np.arange(6, dtype=np.float32).reshape(2, 3)
    return [Record(id, length, b"text", numbers + len(id)) for id in ids]


def test_a_batch_is_there_or_is_not(tmp_path):
    shard, store = open_for_writing(tmp_path, HEADER, 3)
    shard.append(records("a", "bb"))
    with pytest.raises(MemAttnError, match="is being written by another process"):
        shard.append(records("c", "a"))
    assert list(store.ids()) == ["a", "bb"] and faults(tmp_path) == ([], 2)
    assert np.array_equal(store["bb"].vectors, records("bb")[0].vectors)
    with pytest.raises(MemAttnError, match="has no record 'c'"):
        store["c"]


def test_numbers_beyond_float16_are_refused():
    vectors = np.full((2, 3), 1e6, dtype=np.float32)
    piece = Piece("d", range(1), 0, 4)
    assert record_of(piece, b"", vectors, "float32").vectors.dtype == "float32"
    with pytest.raises(MemAttnError, match="document 'd': .* --dtype float16 cannot hold"):
        record_of(piece, b"", vectors, "float16")


@pytest.mark.parametrize("format", ["1", "2"])
def test_every_field_is_checked(format, tmp_path):
    shard = shard_of(format, tmp_path, records("a", "bb"))
    fields = {"id": "'b'", "length": "5", "source": "x'00'", "vectors": "x'00'", "checksum": "x''"}
    if format == "2":
        fields |= {"number": "7", "digest": "x'00'"}
    for field, value in fields.items():
        with sqlite3.connect(shard.file) as raw:
            before = raw.execute("SELECT * FROM records WHERE number = 1").fetchone()
            raw.execute(f"UPDATE records SET {field} = {value} WHERE number = 1")
        found, whole = faults(tmp_path)
        assert "is damaged: its checksum does not match" in "".join(found) and whole == 1
        with pytest.raises(Damaged, match=r"the record .* is damaged"):
            content(tmp_path)
        with sqlite3.connect(shard.file) as raw:
            raw.execute(f"DELETE FROM records WHERE number IN (1, {value if value == '7' else 1})")
            raw.execute(f"INSERT INTO records VALUES ({', '.join('?' * len(before))})", before)
    assert faults(tmp_path) == ([], 2)


def shard_of(format, folder, records):
    """A store of one shard with these records, for writing."""
    file = folder / "shard-00000.sqlite"
    if format == "1":  # as the first release wrote it
        with sqlite3.connect(file) as raw:
            for statement in OLD_SCHEMA:
                raw.execute(statement)
            values = {"format": "1"} | asdict(HEADER)
            raw.executemany("INSERT INTO header VALUES (?, ?)", values.items())
    shard, store = open_for_writing(folder, HEADER, 0)
    store.close()
    shard.append(records)
    return shard


def old_checksum(id, length, source, vectors):
    return hashlib.sha256(f"{id}\0{length}".encode() + b"\0" + source + b"\0" + vectors).digest()


def test_a_store_of_the_first_release(tmp_path, capsys):
    """It is read, checked and added to."""
    shard = shard_of("1", tmp_path, records("a"))
    (first,) = records("bb")
    row = (first.id, first.length, first.source)
    vectors = first.vectors.tobytes()
    with sqlite3.connect(shard.file) as raw:
        raw.execute(
            "INSERT INTO records VALUES (2, ?, ?, ?, ?, ?)",
            (*row, old_checksum(*row, vectors), vectors),
        )
    shard.append(records("ccc"))
    assert list(content(tmp_path)) == ["a", "bb", "ccc"]
    other, _ = open_for_writing(tmp_path, HEADER, 1)
    other.append(records("dddd"))
    assert [one.format for one in Store(tmp_path).shards] == ["1", "2"]
    assert main(["decompress", str(tmp_path), "--check"]) == 0
    said = capsys.readouterr().out
    assert "4 records are intact" in said
    assert "note: shard-00000.sqlite: written by a release whose files have no checksum" in said


def test_any_changed_byte_is_found_or_not_read(tmp_path):
    """What --check calls whole is read as it was written. In a sealed file, any byte is found."""
    shard = shard_of("2", tmp_path, records("a", "bb"))
    shard.close()
    with sqlite3.connect(shard.file) as small:
        small.execute("PRAGMA page_size = 512")
    small.execute("VACUUM")
    small.close()
    before, header = rows_of(tmp_path), Store(tmp_path).header
    for place, damaged in changed_bytes(shard.file, every=256):
        shard.file.write_bytes(damaged)
        if (found := all_faults(tmp_path)) == ([], 2):
            assert (rows_of(tmp_path), Store(tmp_path).header) == (before, header), place
        assert found[0] or found[1] == 2, place
        with suppress(MemAttnError):
            assert [row for row in rows_of(tmp_path) if row not in before] == [], place
    again = Shard(shard.file)
    again.index_again()
    again.seal()
    for place, damaged in changed_bytes(shard.file, every=64):
        if place % 20 == 0:
            shard.file.write_bytes(damaged)
            assert all_faults(tmp_path)[0], place


def changed_bytes(file, every):
    """The content of a file with one byte changed, once for each byte of the file.

    every: of the bytes among zeros, most of which nothing reads, one in so many
    """
    raw = file.read_bytes()
    masks = np.random.default_rng(1).integers(1, 256, len(raw)).tolist()
    for place, mask in enumerate(masks):
        if any(raw[max(0, place - 2) : place + 3]) or place % every == 0:
            damaged = bytearray(raw)
            damaged[place] ^= mask
            yield place, damaged
    file.write_bytes(raw)


def all_faults(folder):
    try:
        return faults(folder)
    except MemAttnError as error:  # a foreign file
        return [str(error)], 0


def rows_of(folder):
    store = Store(folder)
    try:
        found = [(id, length, store[id]) for id, length in store.lengths()]
        return [(id, n, r.id, r.length, r.source, r.vectors.tobytes()) for id, n, r in found]
    finally:
        store.close()


def test_a_file_that_is_not_the_one_written(made, tmp_path, capsys):
    """Bytes that no record uses, and an earlier copy that is consistent."""
    folder, store = made[0], tmp_path / "s"
    ours(folder, store)
    (file,) = store.glob("*.sqlite")
    earlier = file.read_bytes()
    unused = earlier.index(bytes(100)) + 50
    changed = earlier[:unused] + b"changed" + earlier[unused + 7 :]
    ours(folder, store, "--subset", "valid")
    assert main(["decompress", str(store), "--check"]) == 0
    for content_of_file in (changed, earlier):
        file.write_bytes(content_of_file)
        capsys.readouterr()
        assert main(["decompress", str(store), "--check"]) == 1
        assert f"{file} is damaged: it is not the file that was" in capsys.readouterr().err
        assert main(["decompress", str(store), "--check", "--drop-damaged"]) == 0
        assert main(["decompress", str(store), "--check"]) == 0
        ours(folder, store, "--subset", "valid")
        assert len(content(store)) == 13 and len(mark(file).read_text()) == 64


def test_adding_breaks_the_seal(tmp_path):
    shard = shard_of("2", tmp_path, records("a"))
    shard.seal()
    assert mark(shard.file).read_text() == hashlib.sha256(shard.file.read_bytes()).hexdigest()
    shard.append(records("bb"))
    assert mark(shard.file).read_text() == "" and faults(tmp_path) == ([], 2)


def test_lost_rows_are_noticed_when_the_store_is_read(tmp_path):
    """A page of the table says that it has one row less; SQLite reads on without a word."""
    shard = shard_of("2", tmp_path, records("a", "bb"))
    shard.close()
    raw = bytearray(shard.file.read_bytes())
    (page,) = (
        at for at in range(0, len(raw), 4096) if raw[at] == 13 and b"text" in raw[at:][:4096]
    )
    assert raw[page + 4] == 2
    raw[page + 4] = 1
    shard.file.write_bytes(raw)
    for read in (
        lambda: list(Store(tmp_path).lengths()),
        lambda: open_for_writing(tmp_path, HEADER, 0),
    ):
        with pytest.raises(Damaged, match="its records are not those of its index"):
            read()


def test_a_file_that_was_never_begun_is_no_shard(tmp_path):
    (tmp_path / "shard-00000.sqlite").touch()
    with pytest.raises(MemAttnError, match="is not a store"):
        Store(tmp_path)
    Shard(tmp_path / "shard-00001.sqlite", HEADER).append(records("a"))
    assert list(Store(tmp_path).ids()) == ["a"]


def test_batches():
    assert batches([3, 4, 2, 9, 1], 10) == [range(0, 2), range(2, 3), range(3, 4), range(4, 5)]
    assert batches([3, 11, 3], 10) == [range(0, 1), range(1, 2), range(2, 3)]
    assert batches([], 10) == []
