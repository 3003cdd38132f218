"""Archives, YAML, arrays, stores and folders of other libraries that try to run or write something.

What would run creates a marker file.
"""

import ast
import functools
import io
import json
import pickle
import sqlite3
import tarfile
import warnings
import zipfile
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from fairseq import file_utils
from fairseq.data import Dictionary, data_utils
from fairseq.data.audio.data_cfg import get_config_from_yaml
from fairseq.data.audio.feature_transforms.global_cmvn import GlobalCMVN
from harness import ROOT, attempt
from omegaconf import OmegaConf
from test_checkpoints import RunsCode

from fairseq_memattn import archive_limits
from fairseq_memattn.archive_limits import RefusedArchive
from fairseq_memattn.cli.commands.decompress import check_names
from fairseq_memattn.cli.shared.hf_checkpoint import read_weights, weight_files
from fairseq_memattn.compression.shard import Header, Record, Shard, header_checksum
from fairseq_memattn.compression.store import Store, open_for_writing
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.host.checkpoints import read_checkpoint
from fairseq_memattn.models.abc_transformer import ABCTransformer
from fairseq_memattn.transformers.document_translator import DocumentTranslator

# Every module of fairseq that unpickles, imports by name, unpacks or starts programs, and how
# often.
KNOWN = {
    "torch.load": {
        "checkpoint_utils": 2,
        "data.codedataset": 3,
        "distributed.utils": 1,
        "models.speech_to_text.xm_transformer": 1,
        "models.text_to_speech.vocoder": 3,
        "modules.quantization.pq.em": 3,
    },
    "np.load": {
        "data.audio.audio_utils": 2,
        "data.audio.feature_transforms.global_cmvn": 1,
        "data.codedataset": 5,
        "data.fasta_dataset": 1,
        "speech_generator": 1,
        "tasks.text_to_speech": 1,
    },
    "pickle.loads": {"distributed.utils": 1},
    "yaml.load": {"data.audio.data_cfg": 1},
    "yaml.safe_load": {"quantization_utils": 1},
    "tarfile.open": {"file_utils": 1},
    "torch.hub.load": {"models.speech_to_text.hub_interface": 1},
    "importlib.import_module": {
        "criterions": 1,
        "data.audio": 1,
        "data.encoders": 1,
        "model_parallel.criterions": 1,
        "model_parallel.models": 1,
        "models": 1,
        "models.ema": 1,
        "models.huggingface": 1,
        "optim": 1,
        "optim.fused_adam": 2,
        "optim.lr_scheduler": 1,
        "scoring": 1,
        "tasks": 1,
        "utils": 1,
    },
    "subprocess.Popen": {"data.plasma_utils": 2},
    "subprocess.call": {"tasks.audio_pretraining": 1},
    "subprocess.check_output": {"data.fasta_dataset": 2, "distributed.utils": 1},
}
LOADERS = ("pickle.load", "marshal.", "shelve.", "joblib.", "dill.", "cloudpickle.", "zipfile.")
STARTERS = ("os.system", "os.popen", "os.exec", "os.spawn", "runpy.", "subprocess.")


def calls(path):
    """Each call in a file, and the dotted name of what it calls."""
    with warnings.catch_warnings(action="ignore"):  # about fairseq's escape sequences
        tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
            yield ast.unparse(node.func), node


@functools.cache
def calls_of_fairseq():
    """All calls in fairseq and its commands but the examples, and the name of the module."""
    found = []
    for package in ("fairseq", "fairseq_cli"):
        folder = Path(find_spec(package).submodule_search_locations[0])
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            if parts[0] != "examples":
                module = ".".join(part for part in parts if part != "__init__")
                found += [(name, module, call) for name, call in calls(path)]
    return found


def test_the_list_of_what_fairseq_loads_is_complete():
    found = defaultdict(lambda: defaultdict(int))
    for name, module, _ in calls_of_fairseq():
        name = name.replace("numpy.load", "np.load")
        if (
            name in KNOWN
            or name.startswith((*LOADERS, *STARTERS))
            or "load_state_dict_from" in name
        ):
            found[name][module] += 1
    assert {name: dict(modules) for name, modules in found.items()} == KNOWN


def test_fairseq_switches_no_protection_off():
    for name, module, call in calls_of_fairseq():
        given = {key.arg: ast.unparse(key.value) for key in call.keywords}
        assert "weights_only" not in given and "allow_pickle" not in given, (module, given)
        if name == "yaml.load":
            assert given["Loader"] == "yaml.FullLoader"


OURS = [
    path
    for folder in ("fairseq_memattn", "recipes", "benchmarks", "examples")
    for path in sorted((ROOT / folder).rglob("*.py"))
]
ALWAYS = {"torch.load": ("weights_only", "True"), "np.load": ("allow_pickle", "False")}


def test_this_project_evaluates_and_unpickles_nothing():
    """But the runner of recipes, for which an experiment is a program as a shell script is."""
    refused = ("eval", "exec", "yaml.load", "yaml.unsafe_load", "yaml.full_load", "torch.hub.load")
    found = [(path, *call) for path in OURS for call in calls(path)]
    for path, name, call in found:
        if path == ROOT / "recipes" / "runner" / "experiment.py" and name == "eval":
            continue
        assert name not in refused and not name.startswith(LOADERS[:-1]), path
        if name in ALWAYS:
            option, value = ALWAYS[name]
            given = {key.arg: ast.unparse(key.value) for key in call.keywords}
            assert given.get(option) == value


# ---------------------------------------------------------------------------------- archives


def member(name, type=tarfile.REGTYPE, content=b"x", linkname=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = type, linkname
    info.size = len(content) if type == tarfile.REGTYPE else 0
    return info, io.BytesIO(content)


def packed(path, *members, kind="gz"):
    with tarfile.open(path, f"w:{kind}") as archive:
        for info, content in members:
            archive.addfile(info, content)
    return path


# The checks are those of tests/data_prep/pipeline/test_archives.py, which has more paths and links.
HOSTILE = {
    "parent": ([member("../outside")], "leads out of its folder"),
    "through a link": (
        [member("model/a", tarfile.SYMTYPE, linkname=".."), member("model/a/outside")],
        "is neither a file nor a folder",
    ),
    "bomb": ([member("model/a", content=bytes(200_000))], "unpacks to more than 100000 bytes"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_an_archive_for_from_pretrained(case, tmp_path, monkeypatch):
    monkeypatch.setattr(archive_limits, "UNPACKED", 100_000)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    members, reason = HOSTILE[case]
    for _, content in members:
        content.seek(0)
    archive = packed(tmp_path / "model.tar.gz", member("model/model.pt"), *members)
    before = archive.read_bytes()
    with pytest.raises(RefusedArchive) as error:
        ABCTransformer.from_pretrained(str(archive), "model.pt")
    assert str(error.value).startswith(f"{archive}: refused, because ") and reason in str(
        error.value
    )
    assert archive.read_bytes() == before
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path != archive]


@pytest.mark.parametrize("kind", ["gz", "bz2"])
def test_an_archive_of_a_model_is_unpacked(kind, tmp_path):
    files = [member("model/model.pt", content=b"weights"), member("model/dict.txt")]
    archive = packed(tmp_path / f"model.tar.{kind}", *files, kind=kind)
    for _ in range(2):
        found = Path(file_utils.load_archive_file(str(archive)))
        contents = {path.name: path.read_bytes() for path in found.iterdir()}
        assert contents == {"model.pt": b"weights", "dict.txt": b"x"}


@pytest.mark.parametrize("names", [["model.pt", "moses.txt"], ["m1/model.pt", "m2/dict.txt"]])
def test_an_archive_without_one_folder(names, tmp_path):
    """fairseq removed it and moved what the names have in common, letter by letter."""
    archive = packed(tmp_path / "model.tar.gz", *map(member, names))
    found = Path(file_utils.load_archive_file(str(archive)))
    assert all((found / name).is_file() for name in names) and archive.is_file()


def test_neither_a_folder_nor_an_archive():
    with pytest.raises(MemAttnError, match="nosuch must be a folder, an archive or its address"):
        file_utils.load_archive_file("nosuch")


def test_data_whose_names_a_shell_would_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = "valid.e$(touch ran)n"
    (tmp_path / f"{name}.fasta").write_text(">x\nA\n")
    with pytest.raises(MemAttnError, match="data in FASTA format are not read"):
        data_utils.load_indexed_dataset(str(tmp_path / name), None)
    assert not (tmp_path / "ran").exists()


def test_a_compressed_checkpoint_is_refused(tmp_path):
    """Its entries may be a thousand times as large as the file."""
    path, bomb = tmp_path / "model.pt", tmp_path / "bomb.pt"
    torch.save({"model": {"a": torch.zeros(100_000)}}, path)
    with zipfile.ZipFile(path) as stored, zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as made:
        for entry in stored.infolist():
            made.writestr(entry.filename, stored.read(entry))
    assert bomb.stat().st_size < path.stat().st_size / 10
    with pytest.raises(RefusedArchive, match="bomb.pt: .* is compressed"):
        read_checkpoint(bomb)


@pytest.mark.parametrize(
    ("ids", "reason"),
    [(["a\0b", "a\0c"], "has a NUL, which ends names"), (["x", "x.npy"], "have the same name")],
)
def test_ids_that_share_a_name_in_an_archive(ids, reason, tmp_path):
    with pytest.raises(RefusedArchive, match=reason):
        check_names(tmp_path / "x.npz", ids)


def test_a_folder_with_code_of_its_own(tmp_path):
    config = {"model_type": "evil", "auto_map": {"AutoConfig": "code.Evil"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "code.py").write_text("import pathlib; pathlib.Path('ran').touch()")
    with pytest.raises(MemAttnError, match="it needs code of its own, which is not run"):
        DocumentTranslator.from_pretrained(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(MemAttnError, match="`memattn export`: (?!it needs code)"):
        DocumentTranslator.from_pretrained(tmp_path)


# ---------------------------------------------------------------------------------- YAML, arrays

TAGS = [
    "!!python/object/apply:pathlib.Path.touch [!!python/object/apply:pathlib.Path ['{}']]",
    "!!python/object/new:os.system ['touch {}']",
    "!!python/object:pathlib.Path {{}}",
    "!!python/name:os.system",
    "!!python/module:os",
]
READERS = {"omegaconf": OmegaConf.load, "speech data": get_config_from_yaml}


@pytest.mark.parametrize("tag", TAGS)
@pytest.mark.parametrize("reader", READERS)
def test_yaml_constructs_no_objects(reader, tag, marker, tmp_path):
    (tmp_path / "x.yaml").write_text(f"a: {tag.format(marker)}\n")
    if reader == "speech data" and tag.startswith("!!python/name"):
        assert callable(get_config_from_yaml(tmp_path / "x.yaml")["a"])  # named, not called
        return
    with pytest.raises(Exception, match="could not determine a constructor"):
        READERS[reader](tmp_path / "x.yaml")


def test_object_arrays_are_refused(marker, tmp_path):
    np.savez(tmp_path / "x.npz", mean=np.array([RunsCode(marker)], object), std=np.ones(1))
    with pytest.raises(ValueError, match="allow_pickle=False"):
        GlobalCMVN(tmp_path / "x.npz")


def test_a_dictionary_is_text(marker, tmp_path):
    symbol = f"__import__('pathlib').Path({str(marker)!r}).touch()"
    (tmp_path / "dict.txt").write_text(f"{symbol} 1\n")
    assert Dictionary.load(str(tmp_path / "dict.txt")).symbols[-1] == symbol


# ---------------------------------------------------------------------------------- stores

HEADER = Header("model", "dictionary", vectors=2, size=3, dtype="float32")


@pytest.fixture
def store(tmp_path):
    shard, _ = open_for_writing(tmp_path / "store", HEADER, 0)
    shard.append([Record("a", 5, b"source", np.ones((2, 3), np.float32))])
    shard.close()
    return tmp_path / "store"


def changed(store, *statements):
    """Changes a shard, whose header has the right checksum nevertheless."""
    (file,) = store.glob("*.sqlite")
    with sqlite3.connect(file) as connection:
        for statement in statements:
            connection.execute(statement)
        header = dict(connection.execute("SELECT * FROM header WHERE key != 'checksum'"))
        checksum = header_checksum(header)
        connection.execute("UPDATE header SET value = ? WHERE key = 'checksum'", [checksum])
    connection.close()
    return file


@pytest.mark.parametrize(
    ("statements", "told"),
    [
        (
            ["CREATE TRIGGER t AFTER DELETE ON records BEGIN DELETE FROM header; END"],
            "is refused: a store has tables only, but this has the trigger 't'",
        ),
        (
            ["ALTER TABLE records RENAME TO r", "CREATE VIEW records AS SELECT * FROM r"],
            "is refused: a store has tables only, but this has the view 'records'",
        ),
        (["UPDATE header SET value = '-2' WHERE key = 'vectors'"], "its header is incomplete"),
        (["UPDATE header SET value = 'object' WHERE key = 'dtype'"], "its header is incomplete"),
    ],
)
def test_hostile_stores(statements, told, store):
    file = changed(store, *statements)
    done = attempt("memattn", "decompress", store, "--list")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert f"{file} " in done.stderr and told in done.stderr


def test_a_size_that_no_record_has(store):
    changed(store, f"UPDATE header SET value = '{10**15}' WHERE key = 'size'")
    with pytest.raises(MemAttnError, match="the record 'a' must have 2 x 10+ numbers, but has 6"):
        Store(store)["a"]


def test_a_shard_of_another_kind(store):
    (file,) = store.glob("*.sqlite")
    file.write_bytes(pickle.dumps({"a": 1}) * 100)
    with pytest.raises(MemAttnError, match=f"{file} cannot be used as a store"):
        Shard(file)


@pytest.mark.parametrize("id", ["../x", "/tmp/x", "a/../../x", "..\\x"])
def test_ids_that_lead_out_of_an_archive(id, tmp_path):
    check_names(tmp_path / "x.npz", ["a", "a/b", "a..b"])
    with pytest.raises(
        RefusedArchive, match="--output .*/x.npz: the id .* leads out of its folder"
    ):
        check_names(tmp_path / "x.npz", ["a", id])


# ---------------------------------------------------------------------------------- transformers


@pytest.mark.parametrize("zipped", [True, False])
def test_pickled_weights_that_hold_code(zipped, marker, tmp_path):
    path = tmp_path / "pytorch_model.bin"
    torch.save({"a": RunsCode(marker)}, path, _use_new_zipfile_serialization=zipped)
    told = r"cannot be read as weights \(it contains `posix.system`|an instruction that no"
    with pytest.raises(ValueError, match=told) as error:
        read_weights(weight_files(tmp_path))
    assert str(error.value).startswith(f"{path}: ") and "\n" not in str(error.value)


@pytest.mark.parametrize("part", ["../x.bin", "/etc/passwd", "a/b.bin", "..", "."])
def test_an_index_that_lists_other_folders(part, tmp_path):
    index = tmp_path / "pytorch_model.bin.index.json"
    index.write_text(json.dumps({"weight_map": {"a": part}}))
    with pytest.raises(ValueError, match="must be in the same folder, but one is|no such file"):
        weight_files(tmp_path)


def header(content):
    return len(content).to_bytes(8, "little") + content


@pytest.mark.parametrize(
    "content",
    [
        b"",
        header(b"{}")[:-1],
        header(b'{"a": {"dtype": "F32", "shape": [9999999999], "data_offsets": [0, 4]}}') + b"1234",
        header(b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]}}'),
    ],
)
def test_hostile_safetensors(content, tmp_path):
    pytest.importorskip("safetensors")
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(
        ValueError, match=f"{tmp_path}/model.safetensors: cannot be read as weights"
    ):
        read_weights(weight_files(tmp_path))


def test_yaml_is_new_enough():
    """Before 5.4, `yaml.FullLoader` constructed objects."""
    assert tuple(map(int, yaml.__version__.split(".")[:2])) >= (5, 4)
