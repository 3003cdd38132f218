"""Small inputs of every command, each made when it is first needed."""

import json
import lzma
import random
import re
import shlex
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import sandbox
import sentencepiece
import torch
from families import DECODER, ENCODER, FAMILIES, HERE, POSITIONS, TRAINING
from questions import records, squad_records

PLUGIN = str(HERE.parents[1] / "fairseq_memattn")
SPLITS = {"train": 8, "valid": 5, "test": 7}  # and their numbers of lines
# With two limits, so that a wrong one does not make it endless.
UPDATE = f"{TRAINING} --max-update 1 --max-epoch 2 --save-dir save"
OWN_MODELS = {  # fairseq's
    "softmax": f"pairs --arch transformer {ENCODER} {DECODER} {POSITIONS}",
    "softmax_lm": f"mono --task language_modeling --arch transformer_lm {DECODER} "
    "--tokens-per-sample 12",
}
SPAN_TASK = (
    "--task span_answering --criterion span_answering --window 64 --stride 24 --max-question 30 "
    f"--arch gmat_bert_tiny {ENCODER} --gmat-memory 4 --gmat-chunk 16"
)
MODELS = [*FAMILIES, *OWN_MODELS]
FOLDERS = ("pairs", "mono", "text", "spans", "qa", "store", "hf_t5")
OUTPUTS = ("generated.txt", "reference.txt", "system.txt", "ids.txt", "documents.txt")
FILES = ("generated.txt", "reference.txt", "squad.json", "hotpot.json", "spm.model", "sets.json")


class Inputs:
    """A folder of inputs. A checkpoint has the name models/FAMILY.pt."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, name: str) -> Path:
        path = self.folder / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            make_model(self, path) if path.parent.name == "models" else MAKERS[name](self, path)
        return path

    def copy(self, name: str, target: Path) -> None:
        source = self.path(name)
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
        else:
            shutil.copyfile(source, target)

    def run(self, line: str) -> None:
        """A command that makes an input, in the folder."""
        command, *argv = shlex.split(line)
        done = sandbox.run(command, argv, self.folder)
        assert done.status == 0, done.out + done.err


def make_model(inputs: Inputs, path: Path) -> None:
    if path.stem in FAMILIES:
        packed = (HERE / "kept" / f"{path.stem}.pt.xz").read_bytes()
        path.write_bytes(lzma.decompress(packed))
    else:
        line = OWN_MODELS[path.stem]
        inputs.path(line.split()[0])
        inputs.run(f"fairseq-train {line} --user-dir {PLUGIN} {UPDATE}")
        shutil.move(inputs.folder / "save" / "checkpoint_last.pt", path)


def sentence(draw: random.Random) -> str:
    return " ".join(f"w{draw.randrange(20)}" for _ in range(draw.randint(3, 9)))


def write_lines(path: Path, lines: Sequence[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def make_text(inputs: Inputs, path: Path) -> None:
    """SPLIT.x, SPLIT.y and SPLIT.docid, with documents of two lines."""
    draw = random.Random(1)
    path.mkdir()
    for split, count in SPLITS.items():
        for side in "xy":
            write_lines(path / f"{split}.{side}", [sentence(draw) for _ in range(count)])
        write_lines(path / f"{split}.docid", [f"d{number // 2}" for number in range(count)])


def make_pairs(inputs: Inputs, path: Path) -> None:
    """The text, binarised with the dictionaries of the kept checkpoints."""
    text = inputs.path("text")
    words = HERE / "data" / "pairs"
    prefixes = " ".join(f"--{split}pref text/{split}" for split in SPLITS)
    inputs.run(
        f"fairseq-preprocess -s x -t y {prefixes} --destdir {path.name} "
        f"--srcdict {words / 'dict.x.txt'} --tgtdict {words / 'dict.y.txt'}"
    )
    for split in SPLITS:
        shutil.copyfile(text / f"{split}.docid", path / f"{split}.x-y.docids")


def make_mono(inputs: Inputs, path: Path) -> None:
    """The source side alone."""
    text = inputs.path("text")
    (inputs.folder / "plain").mkdir()
    for split in SPLITS:
        shutil.copyfile(text / f"{split}.x", inputs.folder / "plain" / split)
    prefixes = " ".join(f"--{split}pref plain/{split}" for split in SPLITS)
    words = HERE / "data" / "text" / "dict.txt"
    inputs.run(
        f"fairseq-preprocess --only-source {prefixes} --destdir {path.name} --srcdict {words}"
    )
    for split in SPLITS:
        shutil.copyfile(text / f"{split}.docid", path / f"{split}.docids")


def make_outputs(inputs: Inputs, path: Path) -> None:
    """What fairseq-generate prints, references, another system and document ids."""
    draw = random.Random(2)
    references = [sentence(draw) for _ in range(SPLITS["test"])]
    printed = []
    for number, text in enumerate(references):
        printed += [f"S-{number}\t{sentence(draw)}", f"T-{number}\t{text}"]
        printed += [f"{kind}-{number}\t-0.5\t{text}" for kind in "HD"] + [f"P-{number}\t-0.5 -0.5"]
    write_lines(inputs.folder / "generated.txt", printed)
    write_lines(inputs.folder / "reference.txt", references)
    write_lines(inputs.folder / "system.txt", references[::-1])
    write_lines(inputs.folder / "ids.txt", [f"d{n // 4}" for n in range(len(references))])
    documents = [" ".join(references[n : n + 4]) for n in range(0, len(references), 4)]
    write_lines(inputs.folder / "documents.txt", documents)


def make_questions(inputs: Inputs, path: Path) -> None:
    """HotpotQA's and SQuAD's files, answers by id and generated answers."""
    asked = records(8, 1)
    answers = [record["answer"] for record in asked]
    (inputs.folder / "hotpot.json").write_text(json.dumps(asked))
    (inputs.folder / "squad.json").write_text(json.dumps(squad_records(8, 1)))
    by_id = {record["_id"]: record["answer"] for record in asked}
    (inputs.folder / "answers.json").write_text(json.dumps(by_id))
    printed = []
    for number, answer in enumerate(answers):
        printed += [f"S-{number}\tx", f"T-{number}\t{answer}", f"H-{number}\t-0.5\t{answer}"]
    write_lines(inputs.folder / "answered.txt", printed)


def make_sets(inputs: Inputs, path: Path) -> None:
    """Voita et al.'s format."""
    context = "w1 _eos w2 _eos w3"
    groups = [
        {"src": f"{context} _eos w{n}", "dst": [f"{context} _eos w4", f"{context} _eos w5"]}
        for n in range(4)
    ]
    path.write_text(json.dumps([{**group, "true_ind": 0} for group in groups]))


def train_pieces(text: Path, model: Path, **options: int) -> None:
    sentencepiece.SentencePieceTrainer.train(
        **{"input": str(text), "model_prefix": str(model), "vocab_size": 20},
        **{"num_threads": 1, "minloglevel": 2, "hard_vocab_limit": False, **options},
    )


def make_pieces(inputs: Inputs, path: Path) -> None:
    train_pieces(inputs.path("text") / "train.x", path.with_suffix(""))


def make_store(inputs: Inputs, path: Path) -> None:
    inputs.path("mono")
    model = inputs.path("models/gmat_bert_compression.pt")
    inputs.run(f"memattn compress mono --path {model} --output {path.name} --cpu")


def make_spans(inputs: Inputs, path: Path) -> None:
    inputs.path("squad.json")
    files = "--files train=squad.json valid=squad.json"
    inputs.run(f"memattn prepare squad --output {path.name} --spans --vocab-size 33 {files}")


def make_span_model(inputs: Inputs, path: Path) -> None:
    inputs.path("spans")
    inputs.run(f"fairseq-train spans/bin --user-dir {PLUGIN} {SPAN_TASK} {UPDATE}")
    shutil.move(inputs.folder / "save" / "checkpoint_last.pt", path)


def make_qa(inputs: Inputs, path: Path) -> None:
    inputs.path("hotpot.json")
    files = "--files train=hotpot.json valid=hotpot.json"
    inputs.run(f"memattn prepare hotpotqa --output {path.name} --vocab-size 33 {files}")


def make_transformers_folder(inputs: Inputs, path: Path) -> None:
    """A model as transformers saves it; HERE/NAME.txt lists the shapes of its weights."""
    path.mkdir()
    shapes = Path(__file__).with_name(f"{path.name}.txt").read_text().splitlines()
    config, *rows = shapes
    (path / "config.json").write_text(config)
    draw = torch.Generator().manual_seed(1)
    weights = {}
    for name, *shape in map(str.split, rows):
        weights[name] = torch.randn(*map(int, shape), generator=draw)
    torch.save(weights, path / "pytorch_model.bin")
    if path.name == "hf_t5":
        text = inputs.path("text") / "train.x"
        train_pieces(text, path / "spiece", pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    else:
        write_lines(path / "vocab.txt", ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefg"])


def make_configuration(inputs: Inputs, path: Path) -> None:
    """A folder with a configuration of fairseq-hydra-train."""
    path.mkdir()
    text = Path(__file__).with_name("hydra.yaml").read_text()
    (path / "own.yaml").write_text(re.sub("PLUGIN", PLUGIN, text))


MAKERS: dict[str, Callable[[Inputs, Path], None]] = {
    "text": make_text,
    "pairs": make_pairs,
    "mono": make_mono,
    "spm.model": make_pieces,
    "store": make_store,
    "spans": make_spans,
    "spans.pt": make_span_model,
    "qa": make_qa,
    "sets.json": make_sets,
    "conf": make_configuration,
    **dict.fromkeys(("hf_t5", "hf_bert"), make_transformers_folder),
    **dict.fromkeys(OUTPUTS, make_outputs),
    **dict.fromkeys(("hotpot.json", "squad.json", "answers.json", "answered.txt"), make_questions),
}
