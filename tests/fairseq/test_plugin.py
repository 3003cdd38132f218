"""What importing the plugin does, and what it does not."""

import subprocess
import sys

import pytest
from forked import FAIRSEQ, run_forked
from harness import PLUGIN, ROOT, environment

from fairseq_memattn.attention.controls import CONTROLS, KERNEL_ATTENTION

MODELS = {f"abc_{name}": name for name in CONTROLS} | {name: name for name in KERNEL_ATTENTION}


@pytest.fixture
def started(tmp_path):
    """Runs code in a process of its own, which has imported nothing but some modules."""

    def run(code: str, *imported: str) -> subprocess.CompletedProcess[str]:
        script = tmp_path / "script.py"
        script.write_text(code, encoding="utf-8")
        return run_forked([str(script)], ROOT, None, environment(), imported)

    return run


@pytest.fixture
def python(started):
    """Runs code in a process that has imported torch."""
    return lambda code: started(code, "torch")


@pytest.fixture
def forked(started):
    """Runs code in a process that has imported fairseq, but nothing of this package."""
    before = "import sys\nassert not [n for n in sys.modules if n.startswith('fairseq_mem')]\n"
    return lambda code: started(f"{before}{code}", *FAIRSEQ)


REGISTERED = (
    "from fairseq.models import ARCH_MODEL_REGISTRY as models\n"
    "from fairseq.tasks import TASK_REGISTRY as tasks\n"
    "from fairseq.criterions import CRITERION_REGISTRY as criterions\n"
    f"assert {{f'{{name}}_transformer' for name in {list(MODELS)}}} <= set(models)\n"
    "assert {'t5', 't5mem_v1', 'gmat_bert', 'gmat_genbert', 'gmat_transformer'} <= set(models)\n"
    "assert {'document_translation', 'span_corruption', 'question_answering', 'span_answering',"
    " 'majority_tagging'} <= set(tasks)\n"
    "assert {'masked_lm_error', 'sequence_tagging', 'span_answering'} <= set(criterions)\n"
)
IMPORT_USER_DIR = (
    "from argparse import Namespace; from fairseq.utils import import_user_module\n"
    f"import_user_module(Namespace(user_dir={str(PLUGIN)!r}))\n"
)


def test_reloading_the_package_registers_the_same_names(forked):
    """As a notebook does that drops the package from sys.modules to import it again."""
    done = forked(
        "import sys, fairseq_memattn\n"
        "fairseq_memattn.register()\n"
        "del sys.modules['fairseq_memattn']\n"
        f"import fairseq_memattn\nfairseq_memattn.register()\n{REGISTERED}"
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "statement",
    [
        "import fairseq_memattn; fairseq_memattn.register()",
        IMPORT_USER_DIR,
        f"import fairseq_memattn.attention\n{IMPORT_USER_DIR}",
    ],
)
def test_everything_is_registered(statement, forked):
    done = forked(f"{statement}\n{REGISTERED}")
    assert done.returncode == 0, done.stderr


def test_from_pretrained_after_the_attention_was_imported(translator, forked):
    folder, name = translator.checkpoint.parent, translator.checkpoint.name
    done = forked(
        "import fairseq_memattn.attention\n"
        "from fairseq.models.transformer import TransformerModel\n"
        f"hub = TransformerModel.from_pretrained({str(folder)!r}, checkpoint_file={name!r},"
        f" data_name_or_path={str(translator.data)!r}, user_dir={str(PLUGIN)!r})\n"
        "assert type(hub.models[0]).__name__ == 'abc_mlp_transformer', type(hub.models[0])\n"
    )
    assert done.returncode == 0, done.stderr


def test_importing_a_model_registers_it(forked):
    done = forked(
        "from fairseq_memattn.models.gmat_bert import GMATBert\n"
        "from fairseq.models import ARCH_MODEL_REGISTRY as registry\n"
        "assert 'gmat_bert' in registry and 't5' not in registry"
    )
    assert done.returncode == 0, done.stderr


def test_importing_the_package_changes_nothing(forked):
    """No module of others is loaded, no filter, hook, thread or attribute of fairseq is set.

    What finds the package's own modules under their old names finds nothing else, and `torch.load`
    takes the package's own states alone.
    """
    done = forked(
        "import numpy, sys, threading, warnings, torch\n"
        "from fairseq import checkpoint_utils\n"
        "from fairseq.data import data_utils, iterators\n"
        "from fairseq.models import ARCH_MODEL_REGISTRY\n"
        "from torch.serialization import get_safe_globals\n"
        "def seen(): return (list(warnings.filters), sys.excepthook, threading.active_count(),"
        " [one for one in sys.meta_path if type(one).__module__ != 'fairseq_memattn.moved'],"
        " list(sys.path_hooks), list(sys.path),"
        " {one for one in map(str, get_safe_globals()) if 'fairseq_memattn' not in one},"
        " iterators.BackgroundConsumer, data_utils.np, checkpoint_utils.load_checkpoint_to_cpu,"
        " len(ARCH_MODEL_REGISTRY), set(sys.modules))\n"
        "before = seen()\n"
        "import fairseq_memattn, fairseq_memattn.attention, fairseq_memattn.attention.controls\n"
        "import fairseq_memattn.attention.nn, fairseq_memattn.errors\n"
        "import fairseq_memattn.host.patches, fairseq_memattn.evaluation, fairseq_memattn.cli\n"
        "after = seen()\n"
        "assert after[:-1] == before[:-1], [a for a, b in zip(after, before) if a != b]\n"
        "assert not {n for n in after[-1] - before[-1] if n.startswith('fairseq.')}\n"
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.full
def test_registering_leaves_the_root_logger_as_it_is(python):
    """Importing fairseq alone shows all messages, those of other packages too."""
    done = python(
        "import logging, fairseq_memattn; fairseq_memattn.register()\n"
        "assert logging.root.handlers == [] and logging.root.level == logging.WARNING"
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


@pytest.mark.full
def test_prefetching_ends_before_the_interpreter():
    """A thread that frees tensors of numpy's memory while Python shuts down aborts the process."""
    code = (
        "import fairseq_memattn, numpy, torch\n"
        "fairseq_memattn.register()\n"
        "from fairseq.data.iterators import BufferedIterator\n"
        "class Endless:\n"
        "    def __len__(self): return 10**9\n"
        "    def __iter__(self):\n"
        "        while True:\n"
        "            for _ in range(10000): batch = torch.from_numpy(numpy.zeros(100))\n"
        "            yield batch\n"
        "batches = BufferedIterator(10**6, Endless())\n"
        "next(batches)\n"
    )
    argv = [sys.executable, "-c", code]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
