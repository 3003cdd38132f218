"""The overrides that the tables of the recipes name, and what fairseq makes of the recipes."""

import re
import sys
from argparse import Namespace
from pathlib import Path

import pytest
from full import others_in_full
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

ROOT = Path(__file__).parents[2]
RECIPES = sorted(ROOT.glob("recipes/*/*.yaml"))
OVERRIDE = re.compile(
    r"(?<!\S)(?:~[a-z_]+\.[a-z0-9_]+|\+{0,2}[a-z_]+\.[a-z0-9_]+=[^\s,]+)(?=[\s,]|$)"
)


def rows(recipe: Path) -> list[tuple[Path, list[str]]]:
    """The overrides of each row of the table, with those of the row before for "the same"."""
    found: list[tuple[Path, list[str]]] = []
    column, before = -1, []
    text = recipe.read_text(encoding="utf-8")
    named = dict(re.findall(r"^# (\w+) stands for: (.*(?:\n#   .*)*)", text, re.M))
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.removeprefix("#").split("|")]
        if "overrides" in cells:
            column = cells.index("overrides")
        elif line.startswith("# |") and column > 0 and not set(cells[column]) <= set("-"):
            words = [named.get(word, word).replace("\n#", "") for word in cells[column].split()]
            own = OVERRIDE.findall(" ".join(words))
            before = [*before, *own] if "the same" in cells[column] else own
            if own:
                found.append((recipe, before))
    return found


ROWS = [row for recipe in RECIPES for row in rows(recipe)]


def composed(recipe: Path, overrides: list[str]):
    """The configuration as fairseq-hydra-train reads it."""
    from fairseq.dataclass.initialize import hydra_init

    hydra_init(recipe.stem)
    with initialize_config_dir(str(recipe.parent), version_base="1.1"):  # as fairseq
        return compose(recipe.stem, overrides=overrides)


FEW = [row for row in ROWS if row[0].stem == "mlm_512"][:2]


@pytest.mark.parametrize(
    "row", others_in_full(ROWS, FEW), ids=lambda row: f"{row[0].stem} {' '.join(row[1])}"
)
def test_overrides_are_options(row):
    import fairseq_memattn
    from fairseq_memattn.host.correctness.trained_options import check_model_options

    fairseq_memattn.register()
    check_model_options(composed(*row))


def trainings(paper: str, processes: int, *systems: str) -> dict[str, list[str]]:
    """The commands of fairseq-hydra-train for the rows of a paper."""
    sys.path.insert(0, str(ROOT / "recipes"))
    from runner.experiment import Experiment

    sys.path.remove(str(ROOT / "recipes"))
    given = {"processes": str(processes)}
    rows = Experiment(f"{paper}/paper", given, corpora="data", device=[])
    names = systems or rows.default_systems()
    stages = [stage for name in names for stage in rows.run(name, 1)]
    return {f"{stage.folder.name} {stage.name}": stage.command for stage in stages if stage.trains}


COMMANDS = trainings("abc", 1) | trainings("gmat", 1)
SOME = ["2b-t2r-64-1 train", "4-qnli-softmax-1 finetune", "8-bert-facts-1 train"]


@pytest.mark.parametrize("row", others_in_full(list(COMMANDS), SOME))
def test_rows_of_the_paper_are_options(row):
    import fairseq_memattn
    from fairseq_memattn.host.correctness.trained_options import check_model_options

    fairseq_memattn.register()
    _, *overrides, _, _, _, name = COMMANDS[row]
    folder = ROOT / COMMANDS[row][-3]
    check_model_options(composed(folder / f"{name}.yaml", overrides))


def test_more_processes_share_the_batches_of_one():
    """A row with other rows' recipe has the same; finetuning has a batch of one process."""

    def batch(command):
        words = " ".join(command)
        found = re.search(r"world_size=(\d+) optimization.update_freq=\[(\d+)\]", words)
        sequences = re.search(r"dataset.batch_size=(\d+)", words)
        return found and int(found[1]) * int(found[2]) * int(sequences[1] if sequences else 1)

    of_gmat = ("gmat", 4, "5-pg19-512x4-64", "9-qr-512x4-64")
    few, many = trainings("abc", 1), trainings("abc", 4) | trainings(*of_gmat)
    few |= {name: COMMANDS[name] for name in many if name not in few}
    assert {name: batch(command) for name, command in few.items()} == {
        name: batch(command) for name, command in many.items()
    }
    assert few["3a-softmax-1 train"] != many["3a-softmax-1 train"]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.stem)
def test_the_batch_of_an_update_does_not_depend_on_the_machine(recipe):
    """fairseq takes all GPUs, each with a batch of the size that the recipe states."""
    assert OmegaConf.load(recipe).distributed_training.distributed_world_size == 1
    stated = r"distributed_world_size: 1  # [\d,]+ (tokens|sequences) an update"
    assert re.search(stated, recipe.read_text(encoding="utf-8"))


def test_the_softmax_model_of_wikitext_103_is_the_papers():
    """fairseq fills in the options of a model with a dataclass before the architecture does."""
    import fairseq_memattn

    fairseq_memattn.register()
    from fairseq.dataclass.initialize import add_defaults
    from fairseq.models import ARCH_CONFIG_REGISTRY

    cfg = composed(ROOT / "recipes/abc/wikitext103_softmax.yaml", [])
    add_defaults(cfg)
    wanted = Namespace()
    ARCH_CONFIG_REGISTRY["transformer_lm_wiki103"](wanted)
    unlike = {key for key, value in vars(wanted).items() if cfg.model.get(key, value) != value}
    assert unlike <= {"base_shuffle"}  # has no effect without base layers
    assert (cfg.model.decoder_layers, cfg.model.decoder_embed_dim) == (16, 1024)
