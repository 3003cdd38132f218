"""The models of recipes/long_documents: fairseq's commands with that folder as --user-dir."""

import shlex

import pytest
from harness import COMMON, ROOT, SIZES, SLOTS, preprocess, run, train

RECIPE = ROOT / "recipes" / "long_documents"
FOLDER = RECIPE / "numbered_sentences"
GMAT = [*SLOTS, *shlex.split("--gmat-sparsity window --gmat-window 4 --gmat-memory 2")]
STEP_BY_STEP = """
import sys
import torch
from fairseq import checkpoint_utils, utils
from argparse import Namespace
folder, path, data = sys.argv[1:]
utils.import_user_module(Namespace(user_dir=folder))
(model,), _, task = checkpoint_utils.load_model_ensemble_and_task([path], {"data": data})
task.load_dataset("test")
batch = task.dataset("test").collater([task.dataset("test")[i] for i in range(2)])["net_input"]
tokens = batch["prev_output_tokens"]
assert (tokens == task.source_dictionary.index("<sep>")).sum() > 2
encoded = model.eval().encoder(batch["src_tokens"], batch["src_lengths"])
whole = model.decoder(tokens, encoded)[0]
state = {}
for length in range(1, tokens.shape[1] + 1):
    step = model.decoder(tokens[:, :length], encoded, incremental_state=state)[0]
    real = tokens[:, length - 1] != 1
    torch.testing.assert_close(step[real, 0], whole[real, length - 1])
"""


def flags(arch):
    given = [*COMMON, *SIZES, "--arch", arch, "--share-all-embeddings", "--max-update", 2]
    given[given.index("--user-dir") + 1] = FOLDER
    return given


@pytest.fixture(scope="module")
def documents(corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("documents")
    run(
        str(RECIPE / "join.py"), corpus, "--langs", "en", "ru", "--sentences", 5, "--output", folder
    )
    return preprocess(folder, *"-s en -t ru --joined-dictionary".split())


@pytest.mark.full
@pytest.mark.parametrize(
    "arch, more", [("numbered_transformer", []), ("numbered_gmat_transformer", GMAT)]
)
def test_step_by_step_equals_at_once(arch, more, documents, tmp_path):
    trained = train(documents, tmp_path / "run", *flags(arch), *more, fresh=True)
    script = tmp_path / "step_by_step.py"
    script.write_text(STEP_BY_STEP, encoding="utf-8")
    run(str(script), FOLDER, trained.checkpoint, documents, fresh=True)
