"""Values that options and overrides should not have, by the kind of value that they replace."""

import random
from pathlib import Path

MANY_DIGITS = "9" * 5000  # more than int() converts
WHOLE_NUMBERS = [
    *("x", "", " ", "1.5", "nan", "inf", "-1", "0", "-0", "-99999", "2", "7", "1000000000"),
    *("99999999999999999999", MANY_DIGITS, "1e9", "0x10", "1_0", " 3 ", "1,2", "[1]"),
    *("None", "true", "--", "\uff11\uff12", "\u00e9"),
]
NUMBERS = [*WHOLE_NUMBERS, "0.5", "-0.1", "-0.0", "1e400", "1e-400", "1e30", "-inf"]
TEXTS = [
    *("", " ", "nothing", "a/b", "x" * 300, "None", "-1", "nan", "\u00e9\u4e2d", "\udcff"),
    *("{}", "[1", "{'a': 1", "'", "a\nb", "%s", "{0}", "${x}", "=", ",", ":", "x:y", "@", "*"),
    *("<pad>", "\x7f", "__import__('os')"),
]
# The files and folders among them are made by `place_files`.
PATHS = [
    *("nothing", "nothing/there", "", ".", "n" * 300, "\u00e9", "\udcff", "a\nb", "x.npz"),
    *("/dev/full", "/dev/null", "/dev/null/x", "a_file", "a_folder", "empty", "noise"),
    *("link", "loop", "text:text"),
]


def place_files(folder: Path) -> None:
    """The files and folders that PATHS names."""
    (folder / "a_file").write_text("w1 w2\n")
    (folder / "a_folder").mkdir()
    (folder / "empty").touch()
    (folder / "noise").write_bytes(random.Random(1).randbytes(300))
    (folder / "link").symlink_to("nowhere")
    (folder / "loop").symlink_to("loop")


def values_instead_of(value: str, folder: Path) -> list[str]:
    if value.lstrip("-").isdigit():
        return WHOLE_NUMBERS
    if _is_number(value):
        return NUMBERS
    if "/" in value or "." in value or (folder / value).exists():
        return PATHS
    return TEXTS + PATHS


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


# Overrides and flags of fairseq-hydra-train.
OVERRIDES = (
    *("nonsense=1", "+nonsense.x=1", "+task.nonsense=1", "+model.nonsense=1", "hydra.nonsense=1"),
    *("task=nothing", "model=nothing", "criterion=nothing", "task._name=nothing"),
    *("model._name=nothing", "criterion._name=nothing", "optimizer._name=nothing"),
    *("lr_scheduler._name=nothing", "hydra/launcher=nothing", "common.log_format=nothing"),
    *("optimization.lr=x", "optimization.lr=[]", "optimization.lr=[x]", "optimization.lr=[nan]"),
    *("optimization.max_update=x", "optimization.max_update=1.5", "optimization.max_update=-1"),
    *("optimization.update_freq=[0]", "optimization.update_freq=x", "optimization.clip_norm=nan"),
    *("dataset.batch_size=0", "dataset.batch_size=x", "dataset.num_workers=-1", "dataset=null"),
    *("common.seed=x", "common.seed=-1", "common.seed=\u00e9", "++common.seed=x", "common={}"),
    *("common.seed=99999999999999999999", "common.user_dir=nothing", "common.user_dir=null"),
    *("common.fp16=maybe", "common.fp16=true", "common.bf16=true", "common.amp=true"),
    *("common.cpu=3", "common.log_file=/dev/null/x", "optimizer.adam_betas=x"),
    *("optimizer.adam_betas=(1)", "task.data=nothing", "task.data=null", "task.data="),
    *("task.data=[", "task.data={", "task.data=${nothing}", "task.data=???", "task=null"),
    *("model=null", "model={}", "criterion=null", "optimizer=null", "lr_scheduler=null"),
    *("=", "x", "=3", "a b=c", "'", "~task", "~task.data", "~nothing", "\u00e9=1", "surplus"),
    *("hydra.run.dir=/dev/null/x", "hydra.run.dir=", "checkpoint.save_dir=/dev/null/x"),
    *("checkpoint.save_dir=", "checkpoint.restore_file=nothing.pt", "bmuf.block_lr=x"),
    *("checkpoint.finetune_from_model=nothing.pt", "checkpoint.finetune_from_model=a_file"),
    *("dataset.train_subset=nothing", "dataset.valid_subset=nothing", "model.dropout=nan"),
    *("model.decoder_layers=-1", "model.decoder_embed_dim=0", "model.decoder_attention_heads=3"),
    *("model.dropout=x", "+model.decoder_layers=x", "distributed_training.ddp_backend=nothing"),
    *("--multirun", "-m", "--config-name=nothing", "--config-dir=nothing", "--nonsense", "--cfg"),
    *("--config-path=nothing", "--cfg=nothing", "--info=nothing", "--package"),
)
# In the place of a value in a configuration.
YAML_VALUES = (
    *("", "x", "-1", "0", "nan", "1.5", "1e400", "null", "true"),
    *("???", "${nothing}", "'", "\u00e9"),
    *("[1", "[1, 2]", "{a: 1}", "*x", "&x", "!!python/object:os.system x", "9" * 400),
)
YAML_LINES = (
    *("nonsense: 1", "  nonsense: 1", "defaults:", "defaults: [nothing]", "- a", "task: 3"),
    *("model: null", "\tx: 1", "a: b: c", "%", "---", "..."),
)
STANDARD_INPUTS = {
    "empty": b"",
    "a blank line": b"\n",
    "blank lines": b"\n\n\n",
    "a blank line between": b"w1\n\nw2\n",
    "spaces": b"   \n \t \n",
    "no final newline": b"w1 w2",
    "Latin-1": b"w1 \xe9\nw2\n",
    "Latin-1 later": b"w1\nw2\nw3\nw4\nw5\nw6 \xff\n",
    "UTF-16": "w1 w2\n".encode("utf-16"),
    "a byte-order mark": b"\xef\xbb\xbfw1\n",
    "a line too long": b"w1\n" + b"w2 " * 40 + b"\nw3\n",
    "a huge line": b"w1 " * 5000 + b"\n",
    "a huge word": b"x" * 200_000 + b"\n",
    "unknown words": b"never seen these\n",
    "special symbols": b"<pad> </s> <s> <unk>\n",
    "NUL": b"w1 \0 w2\n",
    "CRLF": b"w1 w2\r\nw3\r\n",
    "carriage returns": b"w1\rw2\rw3\n",
    "control characters": b"w1\x0bw2\x0cw3\x1cw4\n",
    "a line separator": "w1\u2028w2\nw3\n".encode(),
    "many lines": b"w1\n" * 50,
}
