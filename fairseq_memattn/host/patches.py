"""What registration changes in fairseq: one table, probed before anything is replaced."""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple

from fairseq_memattn.host import checkpoints, installation
from fairseq_memattn.host.correctness import (
    data_files,
    failed_training,
    finished_training,
    hydra_train,
    older_numpy,
    options,
    prefetching,
    processes,
    samples,
    text,
    trained_options,
    workers,
)
from fairseq_memattn.host.messages.handler import install_excepthook
from fairseq_memattn.host.messages.warnings import quiet_known_warnings
from fairseq_memattn.host.safety import archives, evaluation

# The reasons: a file could run code; a result would be lost or wrong without a word; today's
# Python, torch or numpy break fairseq.
SAFETY, CORRECTNESS, PYTHON = "safety", "correctness", "python"

Replacement = Callable[[Any], Any]  # of what fairseq has to what takes its place

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Patch:
    """A name of fairseq that is replaced.

    module: of fairseq; attribute: in it, or Class.attribute
    what: what for, one sentence
    required: whether the plugin does not work without it. One that is not is left out, with a line
        in the log, where fairseq does not have the name
    when_loaded: for a command, whose import would set up logging: only where it runs
    """

    module: str
    attribute: str
    reason: str
    what: str
    replacement: Replacement
    required: bool = True
    when_loaded: bool = False

    @property
    def name(self) -> str:
        return f"{self.module}.{self.attribute}"


def _limit_each_sentence(generate: Any) -> Any:
    from fairseq_memattn.host.correctness.lengths import limit_each_sentence

    return limit_each_sentence(generate)


PATCHES = (
    Patch(
        "fairseq.checkpoint_utils",
        "load_checkpoint_to_cpu",
        SAFETY,
        "a checkpoint that holds more than values, or whose checksums do not match, is refused "
        "with its name",
        checkpoints.refuse_damaged,
    ),
    Patch(
        "fairseq.file_utils",
        "load_archive_file",
        SAFETY,
        "`from_pretrained` unpacks archives of plain files inside their folder only",
        archives.unpack_inside,
    ),
    Patch(
        "fairseq.data.indexed_dataset",
        "FastaDataset._build_index",
        SAFETY,
        "data in FASTA format, whose path fairseq passes to a shell, are refused",
        data_files.refuse_fasta,
    ),
    Patch(
        "fairseq.distributed.utils",
        "broadcast_object",
        PYTHON,
        "processes get the checkpoint as plain values, which torch loads under its protection",
        processes.broadcast_plain_values,
    ),
    Patch(
        "fairseq.distributed.utils",
        "all_gather_list",
        PYTHON,
        "processes exchange what they report without a GPU",
        processes.gather_without_gpu,
    ),
    Patch(
        "fairseq.distributed.utils",
        "call_main",
        CORRECTNESS,
        "torchrun's processes train together on a CPU too, not a copy each",
        processes.join_torchrun,
    ),
    Patch(
        "fairseq.distributed.utils",
        "distributed_main",
        PYTHON,
        "each process leaves the group before it exits; otherwise one sometimes aborts then",
        processes.end_process_group,
        required=False,
    ),
    Patch(
        "fairseq.checkpoint_utils",
        "load_model_ensemble_and_task",
        CORRECTNESS,
        "`fairseq-validate` accepts that batches cannot be shared out evenly among processes",
        processes.accept_empty_batches,
    ),
    Patch(
        "fairseq_cli.generate",
        "_main",
        CORRECTNESS,
        "`--num-shards` and `--shard-id` are used, which fairseq ignores there",
        processes.generate_a_shard,
    ),
    Patch(
        "fairseq.options",
        "parse_args_and_arch",
        PYTHON,
        "`--bf16` does not add `--tpu`, with which no GPU would be used",
        options.keep_gpu,
    ),
    Patch(
        "fairseq.distributed.utils",
        "call_main",
        CORRECTNESS,
        "options with which the result is lost or wrong end the command before it begins",
        options.check_first,
    ),
    Patch(
        "fairseq_cli.generate",
        "_main",
        CORRECTNESS,
        "the options are checked for programs that call it directly too",
        options.check_first,
    ),
    Patch(
        "fairseq.trainer",
        "Trainer.load_checkpoint",
        CORRECTNESS,
        "a dictionary with other symbols than that of the checkpoint's training is a warning",
        trained_options.warn_of_other_dictionaries,
    ),
    Patch(
        "fairseq.utils",
        "load_align_dict",
        CORRECTNESS,
        "`--replace-unk` without a file copies the source word; fairseq looks for a file `@@ `",
        data_files.copy_unknown,
        required=False,
    ),
    Patch(
        "fairseq.data.encoders.sentencepiece_bpe",
        "SentencepieceBPE.encode",
        CORRECTNESS,
        "every white space is a space before a line is segmented",
        data_files.segment_spaces,
    ),
    Patch(
        "fairseq.data",
        "Dictionary.add_from_file",
        CORRECTNESS,
        "an empty dictionary, with which every token is unknown, is an error",
        data_files.check_dictionary,
    ),
    Patch(
        "fairseq.data.indexed_dataset",
        "make_dataset",
        CORRECTNESS,
        "`.bin` and `.idx` files that are damaged or of another dictionary are an error",
        data_files.check_dataset,
    ),
    Patch(
        "fairseq_cli.preprocess",
        "main",
        CORRECTNESS,
        "the text is UTF-8, has no carriage return in a line, and as many lines in both languages",
        text.check_splits,
        when_loaded=True,
    ),
    Patch(
        "fairseq_cli.interactive",
        "buffered_read",
        CORRECTNESS,
        "a carriage return in a line, of which fairseq makes two lines, is an error",
        text.read_in_buffers,
        when_loaded=True,
    ),
    Patch(
        "fairseq.tasks",
        "FairseqTask.filter_indices_by_size",
        CORRECTNESS,
        "samples that are longer than the model are counted, and must not be all of a split",
        samples.count_long_samples,
    ),
    Patch(
        "fairseq.data.data_utils",
        "batch_by_size",
        CORRECTNESS,
        "the samples of a last batch that is left out are counted",
        samples.count_last_batch,
    ),
    Patch(
        "fairseq.trainer",
        "Trainer.get_train_iterator",
        CORRECTNESS,
        "a split without targets is an error before the first epoch",
        samples.require_targets,
    ),
    Patch(
        "fairseq.trainer",
        "Trainer.get_valid_iterator",
        CORRECTNESS,
        "a split without targets is an error before it is validated",
        samples.require_targets,
    ),
    Patch(
        "fairseq.trainer",
        "Trainer.get_valid_iterator",
        CORRECTNESS,
        "validation keeps the last batch",
        samples.keep_last_batch,
    ),
    Patch(
        "fairseq.tasks.language_modeling",
        "LanguageModelingTask.eval_lm_dataloader",
        CORRECTNESS,
        "blocks that are longer than the model are an error; fairseq leaves them out",
        samples.evaluate_every_block,
    ),
    *(
        Patch(
            "fairseq.sequence_generator",
            f"{generator}.generate",
            CORRECTNESS,
            "each sentence has the largest length that it has in a batch of its own",
            _limit_each_sentence,
        )
        for generator in ("SequenceGenerator", "SequenceGeneratorWithAlignment")
    ),
    Patch(
        "fairseq.checkpoint_utils",
        "_torch_persistent_save",
        CORRECTNESS,
        "a checkpoint that is written a second time replaces what the first attempt has written",
        failed_training.write_again,
    ),
    Patch(
        "fairseq.file_io",
        "PathManager.copy",
        CORRECTNESS,
        "checkpoint_last.pt and checkpoint_best.pt get their names when they are complete",
        checkpoints.copy_whole,
    ),
    Patch(
        "fairseq.trainer",
        "Trainer.save_checkpoint",
        CORRECTNESS,
        "a training that fails before its first update replaces no crash.pt",
        failed_training.save_trained_only,
    ),
    Patch(
        "fairseq_cli.train",
        "get_valid_stats",
        CORRECTNESS,
        "the model is saved before `--best-checkpoint-metric` fails, if it is not logged",
        failed_training.save_before_missing_metric,
        when_loaded=True,
    ),
    Patch(
        "fairseq.checkpoint_utils",
        "load_checkpoint",
        CORRECTNESS,
        "a training that has reached `--max-update` does not make one more update",
        finished_training.stop_finished,
    ),
    Patch(
        "fairseq.data.iterators",
        "EpochBatchIterator.next_epoch_itr",
        CORRECTNESS,
        "the workers of an epoch know its number, without which `masked_lm` masks the same tokens",
        workers.begin_with_new_workers,
    ),
    Patch(
        "fairseq.data.iterators",
        "BackgroundConsumer",
        PYTHON,
        "threads that fetch batches stop before the interpreter exits, which may abort otherwise",
        prefetching.stop_prefetching,
        required=False,
    ),
    *(
        Patch(
            f"fairseq.data.{module}",
            "np",
            PYTHON,
            "an older numpy's `compat.long` and `percentile`, in this module only",
            older_numpy.restore_older_numpy,
            required=False,
        )
        for module in ("data_utils", "language_pair_dataset", "token_block_dataset")
    ),
)

# Replaced by hydra's plugin, before `common.user_dir` is imported.
HYDRA_TRAIN = (
    Patch(
        "fairseq_cli.hydra_train",
        "_hydra_main",
        CORRECTNESS,
        "`common.user_dir` is imported first, so that the configuration is checked",
        hydra_train.import_user_dir,
    ),
)


class Setting(NamedTuple):
    """What else is set, once. where: what is set; what: one sentence; set: the function"""

    where: str
    reason: str
    what: str
    set: Callable[[], None]


SETTINGS = (
    Setting(
        "torch.serialization.add_safe_globals",
        SAFETY,
        "torch's protection stays on, and lets pass `argparse.Namespace` and numpy's arrays and "
        "scalars, which only hold values",
        checkpoints.allow_fairseq_globals,
    ),
    Setting(
        "`eval`, `exec` and `ast.literal_eval` in all modules of fairseq",
        SAFETY,
        "options are read as literals, and nothing is executed",
        evaluation.read_literals_only,
    ),
    Setting(
        "warnings.filterwarnings",
        PYTHON,
        "known warnings about fairseq's calls of older functions are not shown",
        quiet_known_warnings,
    ),
    Setting(
        "sys.excepthook of fairseq's commands",
        CORRECTNESS,
        "a command ends on an error with one sentence, and with status 1 if its output cannot be "
        "written",
        install_excepthook,
    ),
)


@functools.cache
def prepare_fairseq() -> None:
    """Checks the installation, then replaces what PATCHES names and sets what SETTINGS names.

    This is all that registration changes outside this package. A second call does nothing.

    Raises ImportError for an installation that does not work, and for a fairseq without a name that
    a required patch replaces. Then nothing is replaced.
    """
    installation.check_environment()
    replace(PATCHES, SETTINGS)


def replace(patches: Sequence[Patch], settings: Sequence[Setting] = ()) -> None:
    """Replaces the names, after all of them have been looked up. Raises as `prepare_fairseq`."""
    places = [(patch, place) for patch in patches for place in _places(patch)]
    for setting in settings:
        setting.set()
    for patch, (owner, name) in places:
        setattr(owner, name, patch.replacement(getattr(owner, name)))


def _places(patch: Patch) -> Iterator[tuple[Any, str]]:
    """The modules or classes that have the name, and its last part.

    A command that runs as `python -m` is `__main__`.
    """
    *path, name = patch.attribute.split(".")
    for module in _modules(patch):
        owner = functools.reduce(lambda part, key: getattr(part, key, None), path, module)
        if hasattr(owner, name):
            yield owner, name
        elif patch.required:
            raise ImportError(
                f"{installation.version_of_fairseq()} has no {patch.name}, without which this does "
                f"not hold: {patch.what}; {installation.INSTALL}"
            )
        else:
            logger.warning("left out, because fairseq has no %s: %s", patch.name, patch.what)


def _modules(patch: Patch) -> list[Any]:
    if not patch.when_loaded:
        try:
            return [import_module(patch.module)]
        except ModuleNotFoundError:
            return [None]
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    names = [patch.module, *(["__main__"] if getattr(spec, "name", "") == patch.module else [])]
    return [sys.modules[name] for name in names if name in sys.modules]


def table() -> list[tuple[str, str, bool, str]]:
    """What is replaced: name, reason, whether it is optional, and what for."""
    rows = [
        (patch.name, patch.reason, not patch.required, patch.what)
        for patch in (*PATCHES, *HYDRA_TRAIN)
    ]
    return rows + [(one.where, one.reason, False, one.what) for one in SETTINGS]
