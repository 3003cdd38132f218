"""Right command lines of every command, which `mistakes` and `file_damage` make wrong ones of."""

import random
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field

from families import DECODER, ENCODER, FAMILIES, TASKS
from small_inputs import OWN_MODELS, PLUGIN, SPAN_TASK, UPDATE


@dataclass
class CommandLine:
    """inputs: the path of each input in the folder of the command, and its name.

    right: the arguments before they are made wrong
    """

    command: str
    argv: list[str]
    inputs: dict[str, str] = field(default_factory=dict)
    stdin: bytes = b""
    name: str = ""
    right: tuple[str, ...] = ()


def line(text: str, *same: str, **others: str) -> CommandLine:
    """same: inputs that keep their names; others: paths, with `_` for `.`, and their names."""
    command, *argv = shlex.split(text)
    named = {path.replace("_", "."): name for path, name in others.items()}
    return CommandLine(command, argv, {name: name for name in same} | named)


# ---------------------------------------------------------------------------- models

TASK_OF = {name: task for name, (task, _) in FAMILIES.items()}
TASK_OF |= {"softmax": "translation", "softmax_lm": "language_modeling"}
DOCUMENTS = [name for name, task in TASK_OF.items() if task == "document_translation"]
LANGUAGE_MODELS = [name for name, task in TASK_OF.items() if task == "language_modeling"]
MASKED = [name for name, task in TASK_OF.items() if task == "masked_lm"]
TRANSLATORS = [name for name in TASK_OF if name not in (*LANGUAGE_MODELS, *MASKED)]

PLUGGED = f"--user-dir {PLUGIN} --cpu"
FEW = "--batch-size 4 --num-workers 0"  # the last batch is smaller
SEARCH = f"{FEW} --beam 2 --max-len-b 8"


def data_of(family: str) -> str:
    return "mono" if family in (*LANGUAGE_MODELS, *MASKED) else "pairs"


def task_of(family: str) -> str:
    """The flag that an evaluation needs."""
    task = TASK_OF[family]
    return f"--task {'translation' if task == 'one_set_of_weights' else task}"


def evaluation(draw: random.Random, families: list[str], text: str, *inputs: str) -> CommandLine:
    """A command with a checkpoint; text: the line with DATA and TASK."""
    family = draw.choice(families)
    data = data_of(family)
    text = text.replace("DATA", data).replace("TASK", task_of(family))
    if text.startswith("fairseq-") and draw.random() < 0.7:
        text += " --required-batch-size-multiple 1"  # the documentation's advice
    return line(f"{text} --path model.pt", data, *inputs, model_pt=f"models/{family}.pt")


# ------------------------------------------------------------------------- training


def train(draw: random.Random) -> CommandLine:
    family = draw.choice(list(FAMILIES))
    task, flags = FAMILIES[family]
    text = f"fairseq-train {data_of(family)} --user-dir {PLUGIN} --task {TASKS[task]} {flags}"
    text = f"{text} {validated(draw)}"
    starts = {
        "": 6,
        "--restore-file model.pt --max-update 3 --max-epoch 9": 1,
        "--finetune-from-model model.pt": 1,
    }
    start = draw.choices(list(starts), list(starts.values()))[0]
    if not start:
        return line(text, data_of(family))
    return line(f"{text} {start}", data_of(family), model_pt=f"models/{family}.pt")


def validated(draw: random.Random) -> str:
    return UPDATE.replace("--disable-validation", "") if draw.random() < 0.2 else UPDATE


def train_fairseq(draw: random.Random) -> CommandLine:
    name = draw.choice(list(OWN_MODELS))
    data = OWN_MODELS[name].split()[0]
    text = f"fairseq-train {OWN_MODELS[name]} --user-dir {PLUGIN}"
    if data == "pairs" and draw.random() < 0.2:
        bleu = '--eval-bleu --eval-bleu-args \'{"beam": 2, "max_len_b": 5}\''
        return line(f"{text} {UPDATE.replace('--disable-validation', bleu)}", data)
    return line(f"{text} {validated(draw)}", data)


MADE = {
    f"--task majority_tagging --length 16 --train-examples 16 --criterion sequence_tagging "
    f"--arch gmat_bert_tiny {ENCODER} --gmat-chunk 4 --gmat-memory 3": "",
    f"spans/bin {SPAN_TASK}": "spans",
    f"qa/bin --task question_answering --max-source-length 64 --arch t5 {ENCODER} {DECODER}": "qa",
    f"mono --task span_corruption --source-length 8 --arch t5mem_ws {ENCODER} {DECODER}": "mono",
}


def train_other_tasks(draw: random.Random) -> CommandLine:
    text = draw.choice(list(MADE))
    inputs = [MADE[text]] if MADE[text] else []
    return line(f"fairseq-train {text} --user-dir {PLUGIN} {UPDATE}", *inputs)


def hydra_train(draw: random.Random) -> CommandLine:
    """All on the command line, of which hydra_file takes half from a file."""
    model = "decoder_layers=1 decoder_embed_dim=4 decoder_attention_heads=2 decoder_ffn_embed_dim=5"
    groups = (
        f"common.user_dir={PLUGIN} common.cpu=true common.seed=1 model=transformer_lm "
        f"{' '.join(f'model.{size}' for size in model.split())} task=language_modeling "
        "task.data=mono task.tokens_per_sample=12 task.max_target_positions=12 "
        "criterion=cross_entropy optimizer=adam lr_scheduler=inverse_sqrt dataset.batch_size=4 "
        "dataset.required_batch_size_multiple=1 dataset.num_workers=0 optimization.max_update=1 "
        "optimization.max_epoch=2 "
        "dataset.disable_validation=true optimization.lr=[0.01] checkpoint.save_dir=save "
        "hydra.run.dir=hydra hydra.job.chdir=false"
    )
    return line(f"fairseq-hydra-train {groups}", "mono")


def hydra_file(draw: random.Random) -> CommandLine:
    text = "fairseq-hydra-train optimization.clip_norm=1.0 --config-dir conf --config-name own"
    return line(text, "pairs", "conf")


# ----------------------------------------------------------------------- evaluation


def preprocess(draw: random.Random) -> CommandLine:
    splits = "--trainpref text/train --validpref text/valid --testpref text/test"
    kinds = ("", "--joined-dictionary", "--srcdict pairs/dict.x.txt --tgtdict pairs/dict.y.txt")
    kind = draw.choice([*kinds, "--joined-dictionary --srcdict pairs/dict.x.txt", "--only-source"])
    flags = f"-s x -t y {splits} --destdir bin {kind}"
    return line(f"fairseq-preprocess --user-dir {PLUGIN} {flags}", "text", "pairs")


def generate(draw: random.Random) -> CommandLine:
    return evaluation(draw, TRANSLATORS, f"fairseq-generate DATA {PLUGGED} TASK {SEARCH}")


def interactive(draw: random.Random) -> CommandLine:
    text = f"fairseq-interactive DATA {PLUGGED} TASK {SEARCH} --buffer-size 4 -s x -t y"
    if draw.random() < 0.2:
        return evaluation(draw, TRANSLATORS, f"{text} --input text/test.x", "text")
    found = evaluation(draw, TRANSLATORS, text)
    found.stdin = b"w1 w2 w3\nw4\nw5 w6\n"
    return found


def validate(draw: random.Random) -> CommandLine:
    return evaluation(draw, list(TASK_OF), f"fairseq-validate DATA {PLUGGED} TASK {FEW}")


def eval_lm(draw: random.Random) -> CommandLine:
    window = draw.choice(["", "--context-window 4"])
    text = f"fairseq-eval-lm DATA {PLUGGED} TASK {FEW} --tokens-per-sample 12 {window}"
    return evaluation(draw, LANGUAGE_MODELS, text)


# -------------------------------------------------------------------------- memattn


def average(draw: random.Random) -> CommandLine:
    family = draw.choice(list(TASK_OF))
    inputs = ("--inputs ckpt/checkpoint1.pt ckpt/checkpoint2.pt", "--inputs ckpt --last-epochs 2")
    found = line(f"memattn average {draw.choice(inputs)} --output averaged.pt")
    found.inputs = {f"ckpt/checkpoint{n}.pt": f"models/{family}.pt" for n in (1, 2)}
    return found


def compress(draw: random.Random) -> CommandLine:
    kinds = ("", "--documents ids --split", "--documents blank-lines --split", "--dtype float16")
    text = f"memattn compress mono --path model.pt --output new --cpu {draw.choice(kinds)}"
    return line(text, "mono", model_pt="models/gmat_bert_compression.pt")


def decompress(draw: random.Random) -> CommandLine:
    model = "--path model.pt --cpu"
    kinds = ("--list", "--check", "--check --drop-damaged", f"{model} --output out.npz")
    ids = " ".join(f"test-{number}" for number in reversed(range(7)))
    more = (f"{model} --tokens --output out.txt", f"{model} --output out.npz --ids {ids}")
    text = f"memattn decompress store {draw.choice(kinds + more)}"
    return line(text, "store", model_pt="models/gmat_bert_compression.pt")


def contrast(draw: random.Random) -> CommandLine:
    files = "--sets sets.json --json out.json --scores scores.txt"
    return evaluation(draw, TRANSLATORS, f"memattn contrast DATA --cpu {files}", "sets.json")


def convert(draw: random.Random) -> CommandLine:
    arch = draw.choice(["t2r", "abc_gated", "rfa", "abc_mlp"])
    flags = "--flags='--abc-cross-slots 4 --abc-causal-slots 4'"
    text = f"memattn convert pairs --path model.pt --arch {arch}_transformer --output new.pt"
    return line(f"{text} {flags}", "pairs", model_pt="models/softmax.pt")


def cxmi(draw: random.Random) -> CommandLine:
    files = draw.choice(["--json out.json --tokens tokens.txt"] * 4 + ["--picture picture.png"])
    return evaluation(draw, DOCUMENTS, f"memattn cxmi DATA --cpu {files}")


def perplexity(draw: random.Random) -> CommandLine:
    text = "memattn perplexity DATA --cpu --tokens-per-sample 12 --json out.json"
    if draw.random() < 0.5:
        return evaluation(draw, LANGUAGE_MODELS, f"{text} --context-window 0 4")
    kind = draw.choice(["", "--documents"])
    return evaluation(
        draw, ["abc_mlp_lm", "rfa_lm"], f"{text} --stateful --positions restart {kind}"
    )


def plot(draw: random.Random) -> CommandLine:
    families = [name for name in TASK_OF if name.startswith(("abc", "t5mem_w"))]
    families = [name for name in families if name not in MASKED]
    found = evaluation(draw, families, "memattn plot DATA --output picture.png --json out.json")
    if draw.random() < 0.3 and "mono" in found.inputs:
        found.argv += ["--text", "-"]
        found.stdin = b"w1 w2 w3\n"
    return found


def score(draw: random.Random) -> CommandLine:
    kinds = (
        "--generated generated.txt --docids ids.txt --json out.json",
        "--system a=generated.txt --system b=system.txt --resamples 50 --json out.json",
        "--generated generated.txt --docids ids.txt --per-document --output out.txt",
        "--system a=generated.txt --system b=system.txt --docids ids.txt --resamples 0 "
        "--positions --lengths reference --slide-window 2 --slide-stride 1 --json out.json",
        "--system system.txt --docids ids.txt --source reference.txt --consistency --cohesion "
        "--stop-words ids.txt --lengths source --tokenize char --source-tokenize char "
        "--json out.json",
        "--system generated.txt --reference system.txt --docids ids.txt --positions "
        "--slide-window 2 --output out.jsonl --json out.json",
    )
    files = ("generated.txt", "reference.txt", "system.txt", "ids.txt")
    return line(f"memattn score --reference reference.txt {draw.choice(kinds)}", *files)


def align(draw: random.Random) -> CommandLine:
    system = draw.choice(["system.txt", "documents.txt --docids ids.txt"])
    files = "--reference reference.txt --output out.txt --json out.json"
    inputs = ("reference.txt", "system.txt", "documents.txt", "ids.txt")
    return line(f"memattn align --system {system} {files}", *inputs)


def answers(draw: random.Random) -> CommandLine:
    kinds = ("--generated answered.txt --predictions new.json", "--answers answers.json")
    text = f"memattn answers {draw.choice(kinds)} --gold hotpot.json --json out.json"
    return line(text, "answered.txt", "answers.json", "hotpot.json")


def spans(draw: random.Random) -> CommandLine:
    files = "--predictions new.json --nbest nbest.json --json out.json"
    return line(f"memattn spans spans/bin --path spans.pt --cpu {files}", "spans", "spans.pt")


def import_model(draw: random.Random) -> CommandLine:
    name, flags = draw.choice([("t5", "--extra-ids 10"), ("bert", "")])
    text = f"memattn import-{name} hf_{name} --output new.pt --dict new.txt {flags}"
    return line(text, f"hf_{name}")


# -------------------------------------------------------------------------- prepare


def own_corpus(draw: random.Random) -> CommandLine:
    splits = "--text train=text/train valid=text/valid test=text/test"
    langs = draw.choice(["--langs x y", "--langs x y", "--langs x"])
    sizes = "--vocab-size 20 --output out"
    return line(f"memattn prepare own-corpus {splits} {langs} {sizes}", "text")


PREPARATIONS = {
    "squad --output out --vocab-size 33 --files train=squad.json valid=squad.json": "squad.json",
    "squad --output out --spans --vocab-size 33 --files train=squad.json valid=squad.json": (
        "squad.json"
    ),
    "hotpotqa --output out --vocab-size 33 --files train=hotpot.json valid=hotpot.json": (
        "hotpot.json"
    ),
    "discourse --output out --train-docs 4 --valid-docs 2 --test-docs 2 --contrast-groups 6": "",
    "numeric-reasoning --output out --train 8 --valid 4 --test 4": "",
    "stories --output out --train 8 --valid 4 --test 4 --facts 1 3 --sentences 8 --apart 2": "",
    "documents check text/train --langs x y": "text",
    "documents split --input text/train --langs x y --output out --valid-docs 1 --test-docs 1": (
        "text"
    ),
    "documents to han --input text/train --langs x y --output out": "text",
    "documents to g-transformer --input text/train --langs x y --output out": "text",
    "windows make --input text/train --langs x y --output out": "text",
    "windows last --input text/train.x --source text/train.y --output out.txt": "text",
    "subword train --input text/train.x text/train.y --model new --vocab-size 22": "text",
    "subword encode --model spm.model --input text/train.x --output out": "text spm.model",
    "moses detokenise --lang en --input text/train.x --output out.txt": "text",
    "binarise --text train=text/train valid=text/valid --langs x y --output out": "text",
    "mlm-text --train text/train.x --valid text/valid.x --sentencepiece-model spm.model "
    "--dictionary pairs/dict.x.txt --output out": "text spm.model pairs",
}


def prepare(draw: random.Random) -> CommandLine:
    text = draw.choice(list(PREPARATIONS))
    return line(f"memattn prepare {text}", *PREPARATIONS[text].split())


# Every kind of command line, and how often it is drawn.
KINDS: dict[Callable[[random.Random], CommandLine], int] = {
    train: 4,
    train_fairseq: 3,
    train_other_tasks: 2,
    hydra_train: 2,
    hydra_file: 2,
    preprocess: 2,
    generate: 3,
    interactive: 3,
    validate: 1,
    eval_lm: 1,
    average: 1,
    compress: 1,
    decompress: 1,
    contrast: 1,
    convert: 1,
    cxmi: 1,
    perplexity: 1,
    plot: 1,
    score: 2,
    align: 1,
    answers: 1,
    spans: 1,
    import_model: 2,
    own_corpus: 2,
    prepare: 4,
}


def draw_line(draw: random.Random) -> CommandLine:
    kind = draw.choices(list(KINDS), list(KINDS.values()))[0]
    found = kind(draw)
    found.name, found.right = kind.__name__, tuple(found.argv)
    return found
