"""What registration changes in fairseq: one table, probed before anything is replaced."""

import functools
import inspect
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple

from fairseq_memattn.host import checkpoints, installation
from fairseq_memattn.host.correctness import (
    context_parallel,
    data_files,
    hydra_train,
    older_numpy,
    options,
    processes,
    samples,
    text,
    trained_options,
    training,
    workers,
)
from fairseq_memattn.host.messages.handler import install_excepthook, quiet_known_warnings
from fairseq_memattn.host.safety import archives, evaluation

# The reasons: a file could run code; a result would be lost or wrong without a word; today's
# Python, torch or numpy break fairseq.
SAFETY, CORRECTNESS, PYTHON = "safety", "correctness", "python"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Patch:
    """A name of fairseq that is replaced.

    place: module:name or module:Class.name
    replacement: of a function, is called in its place with the function and the arguments; of
        anything else, takes it and returns what takes its place. Its docstring begins with what for
    required: whether the plugin does not work without it. One that is not is left out, with a line
        in the log, where fairseq does not have the name
    when_loaded: for a command, whose import would set up logging: only where it runs
    """

    place: str
    replacement: Callable[..., Any]
    reason: str = CORRECTNESS
    required: bool = True
    when_loaded: bool = False

    @property
    def module(self) -> str:
        return self.place.partition(":")[0]

    @property
    def name(self) -> str:
        return self.place.replace(":", ".")

    @property
    def what(self) -> str:
        return _first_sentence(self.replacement)


def _first_sentence(function: Callable[..., Any]) -> str:
    """The first line of a docstring, as a part of a sentence."""
    line = (inspect.getdoc(function) or "").partition("\n")[0].removesuffix(".")
    return line if line[1:2].isupper() else line[:1].lower() + line[1:]


def _limit_each_sentence(generate: Any, *args: Any, **options: Any) -> Any:
    """A sentence's limits of length do not depend on its batch."""
    from fairseq_memattn.host.correctness.lengths import limit_each_sentence

    return limit_each_sentence(generate, *args, **options)


def _forbid_repeated_ngrams(block: Any, *args: Any) -> Any:
    """`--no-repeat-ngram-size` forbids n-grams at every step."""
    from fairseq_memattn.host.correctness.lengths import forbid_repeated_ngrams

    return forbid_repeated_ngrams(block, *args)


PATCHES = (
    Patch("fairseq.checkpoint_utils:load_checkpoint_to_cpu", checkpoints.refuse_damaged, SAFETY),
    Patch("fairseq.checkpoint_utils:overwrite_args_by_name", options.keep_later_options),
    Patch("fairseq.checkpoint_utils:load_checkpoint_to_cpu", options.forget_embedding_files),
    Patch("fairseq.file_utils:load_archive_file", archives.unpack_inside, SAFETY),
    Patch(
        "fairseq.data.indexed_dataset:FastaDataset._build_index", data_files.refuse_fasta, SAFETY
    ),
    Patch("fairseq.distributed.utils:broadcast_object", processes.broadcast_plain_values, PYTHON),
    Patch("fairseq.distributed.utils:all_gather_list", processes.gather_without_gpu, PYTHON),
    Patch("fairseq.distributed.utils:call_main", processes.join_torchrun),
    Patch(
        "fairseq.distributed.utils:distributed_main",
        processes.end_process_group,
        PYTHON,
        required=False,
    ),
    *(
        Patch(f"fairseq.trainer:Trainer.get_{split}_iterator", context_parallel.share_batches)
        for split in ("train", "valid")
    ),
    Patch("fairseq.trainer:Trainer._prepare_sample", context_parallel.take_part),
    Patch("fairseq.checkpoint_utils:load_model_ensemble_and_task", processes.accept_empty_batches),
    Patch("fairseq_cli.generate:_main", processes.generate_a_shard),
    Patch("fairseq.checkpoint_utils:prune_state_dict", options.prune_each_side),
    Patch("fairseq.options:parse_args_and_arch", options.parse_options, PYTHON),
    Patch("fairseq.distributed.utils:call_main", options.check_first),
    Patch("fairseq_cli.generate:_main", options.check_first),
    Patch("fairseq.trainer:Trainer.load_checkpoint", trained_options.check_beginning),
    Patch("fairseq.utils:load_align_dict", data_files.copy_unknown, required=False),
    Patch("fairseq.utils:post_process_prediction", data_files.replace_unknown, required=False),
    Patch(
        "fairseq.data.encoders.sentencepiece_bpe:SentencepieceBPE.encode", data_files.segment_spaces
    ),
    Patch(
        "fairseq.data.encoders.sentencepiece_bpe:SentencepieceBPE.decode", data_files.decode_bytes
    ),
    Patch("fairseq.data.data_utils:post_process", data_files.join_sentencepiece),
    Patch("fairseq.data:Dictionary.add_from_file", data_files.check_dictionary),
    Patch("fairseq.data.indexed_dataset:make_dataset", data_files.check_dataset),
    Patch("fairseq_cli.preprocess:main", text.check_splits, when_loaded=True),
    Patch("fairseq_cli.interactive:buffered_read", text.read_in_buffers, when_loaded=True),
    Patch("fairseq.tasks:FairseqTask.filter_indices_by_size", samples.count_long_samples),
    Patch("fairseq.data.data_utils:batch_by_size", samples.count_last_batch),
    Patch("fairseq.trainer:Trainer.get_train_iterator", samples.require_targets),
    Patch("fairseq.trainer:Trainer.get_valid_iterator", samples.require_targets),
    Patch("fairseq.trainer:Trainer.get_valid_iterator", samples.keep_last_batch),
    Patch(
        "fairseq.tasks.language_modeling:LanguageModelingTask.eval_lm_dataloader",
        samples.evaluate_every_block,
    ),
    *(
        Patch(f"fairseq.sequence_generator:{generator}.generate", _limit_each_sentence)
        for generator in ("SequenceGenerator", "SequenceGeneratorWithAlignment")
    ),
    Patch("fairseq.ngram_repeat_block:NGramRepeatBlock._no_repeat_ngram", _forbid_repeated_ngrams),
    Patch("fairseq.checkpoint_utils:_torch_persistent_save", training.write_again),
    Patch("fairseq.checkpoint_utils:torch_persistent_save", training.name_unwritten),
    Patch("fairseq.file_io:PathManager.copy", checkpoints.copy_whole),
    Patch("fairseq.trainer:Trainer.save_checkpoint", training.save_trained_only),
    Patch(
        "fairseq_cli.train:get_valid_stats", training.save_before_missing_metric, when_loaded=True
    ),
    Patch("fairseq.checkpoint_utils:load_checkpoint", training.resume),
    Patch("fairseq.checkpoint_utils:save_checkpoint", training.keep_as_many),
    Patch(
        "fairseq.data.iterators:EpochBatchIterator.next_epoch_itr", workers.begin_with_new_workers
    ),
    Patch(
        "fairseq.data.iterators:BackgroundConsumer",
        workers.stop_prefetching,
        PYTHON,
        required=False,
    ),
    Patch(
        "multiprocessing.queues:Queue._on_queue_feeder_error",
        workers.end_without_batch,
        required=False,
    ),
    *(
        Patch(f"fairseq.data.{module}:np", older_numpy.OlderNumpy, PYTHON, required=False)
        for module in ("data_utils", "language_pair_dataset", "token_block_dataset")
    ),
)

# Replaced by hydra's plugin, before `common.user_dir` is imported.
HYDRA_TRAIN = (Patch("fairseq_cli.hydra_train:_hydra_main", hydra_train.import_user_dir),)


class Setting(NamedTuple):
    """What else is set, once, by a function. where: what is set"""

    where: str
    reason: str
    set: Callable[[], None]


SETTINGS = (
    Setting("torch.serialization.add_safe_globals", SAFETY, checkpoints.allow_fairseq_globals),
    Setting(
        "`eval`, `exec` and `ast.literal_eval` in all modules of fairseq",
        SAFETY,
        evaluation.read_literals_only,
    ),
    Setting("warnings.filterwarnings", PYTHON, quiet_known_warnings),
    Setting("sys.excepthook of fairseq's commands", CORRECTNESS, install_excepthook),
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
        setattr(owner, name, _replaced(inspect.getattr_static(owner, name), patch.replacement))


def _replaced(original: Any, replacement: Callable[..., Any]) -> Any:
    if isinstance(original, staticmethod):
        return staticmethod(_replaced(original.__func__, replacement))
    if isinstance(original, type) or not callable(original):
        return replacement(original)

    @functools.wraps(original)
    def replaced(*args: Any, **kwargs: Any) -> Any:
        return replacement(original, *args, **kwargs)

    return replaced


def _places(patch: Patch) -> Iterator[tuple[Any, str]]:
    """The modules or classes that have the name, and its last part.

    A command that runs as `python -m` is `__main__`.
    """
    *path, name = patch.place.partition(":")[2].split(".")
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
    return rows + [(one.where, one.reason, False, _first_sentence(one.set)) for one in SETTINGS]
