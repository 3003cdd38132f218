"""recipes/t5mem/*.sh: what is wrong is told in one sentence, before any work."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("command", "settings", "message"),
    [
        ("discourse.sh", {}, "usage: recipes/t5mem/discourse.sh VARIANT"),
        ("discourse.sh v5", {}, "error: the system must be t5, v1, v2, v3 or v4, but is v5"),
        ("discourse.sh v1", {"UPDATES": "x"}, "error: UPDATES must be a whole number"),
        ("documents.sh bible v1", {}, "usage: recipes/t5mem/documents.sh CORPUS SYSTEM STAGE"),
        ("documents.sh iwslt v1 scratch", {}, "error: CORPUS must be bible or chat, but is iwslt"),
        ("documents.sh chat ws scratch", {}, "error: the system must be t5, v1, v2, v3 or v4"),
        ("documents.sh chat v1 aware", {}, "error: STAGE must be agnostic, scratch or finetuned"),
        ("documents.sh chat v1 agnostic", {"SEED": "-1"}, "error: SEED must be a whole number"),
        ("documents.sh chat v1 agnostic", {}, "error: no folder "),
        ("wikitext2.sh", {}, "usage: recipes/t5mem/wikitext2.sh SYSTEM"),
        ("wikitext2.sh t5-4", {}, "error: SYSTEM must be t5-1, mem-1, "),
        ("wikitext2.sh mem-4", {}, "error: no folder "),
    ],
)
def test_refused_in_one_sentence(command, settings, message, tmp_path):
    done = script(tmp_path, command, settings)
    assert done.returncode != 0 and message in done.stderr and not done.stdout
    assert len(done.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_finetuning_needs_a_model_that_is_trained(tmp_path):
    """A training by sentence that was interrupted is none to go on from."""
    command = "documents.sh chat v1 finetuned"
    agnostic = tmp_path / "work" / "chat" / "v1-agnostic-1"
    wanted = (
        f"error: no trained model in {agnostic}; run recipes/t5mem/documents.sh chat v1 agnostic"
    )
    assert wanted in script(tmp_path, command).stderr
    agnostic.mkdir(parents=True)
    (agnostic / "checkpoint_last.pt").touch()
    assert wanted in script(tmp_path, command).stderr
    (agnostic / "trained-2000").touch()
    assert (
        "error: no folder " in script(tmp_path, command).stderr
    )  # of the corpus, which comes next


def script(folder, command, settings=None):
    places = {"DATA": str(folder / "data"), "WORK": str(folder / "work"), "BIN": "nowhere"}
    name, *arguments = command.split()
    return subprocess.run(
        [f"recipes/t5mem/{name}", *arguments],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], **places, **(settings or {})},
        capture_output=True,
        text=True,
    )
