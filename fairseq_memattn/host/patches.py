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
    what: what for, one sentence
    replacement: of a function, is called in its place with the function and the arguments; of
        anything else, takes it and returns what takes its place
    required: whether the plugin does not work without it. One that is not is left out, with a line
        in the log, where fairseq does not have the name
    when_loaded: for a command, whose import would set up logging: only where it runs
    """

    place: str
    what: str
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


def _limit_each_sentence(generate: Any, *args: Any, **options: Any) -> Any:
    from fairseq_memattn.host.correctness.lengths import limit_each_sentence

    return limit_each_sentence(generate, *args, **options)


def _forbid_repeated_ngrams(block: Any, *args: Any) -> Any:
    from fairseq_memattn.host.correctness.lengths import forbid_repeated_ngrams

    return forbid_repeated_ngrams(block, *args)


PATCHES = (
    Patch(
        "fairseq.checkpoint_utils:load_checkpoint_to_cpu",
        "a checkpoint that holds more than values, or is damaged, is refused",
        checkpoints.refuse_damaged,
        reason=SAFETY,
    ),
    Patch(
        "fairseq.checkpoint_utils:overwrite_args_by_name",
        "options that a checkpoint's task did not have yet are not left out",
        options.keep_later_options,
    ),
    Patch(
        "fairseq.checkpoint_utils:load_checkpoint_to_cpu",
        "`--encoder-embed-path` of a checkpoint's training is not read again",
        options.forget_embedding_files,
    ),
    Patch(
        "fairseq.file_utils:load_archive_file",
        "archives are unpacked inside their folder, and hold plain files only",
        archives.unpack_inside,
        reason=SAFETY,
    ),
    Patch(
        "fairseq.data.indexed_dataset:FastaDataset._build_index",
        "FASTA data, whose path fairseq passes to a shell, are refused",
        data_files.refuse_fasta,
        reason=SAFETY,
    ),
    Patch(
        "fairseq.distributed.utils:broadcast_object",
        "processes send a checkpoint as plain values",
        processes.broadcast_plain_values,
        reason=PYTHON,
    ),
    Patch(
        "fairseq.distributed.utils:all_gather_list",
        "processes report without a GPU",
        processes.gather_without_gpu,
        reason=PYTHON,
    ),
    Patch(
        "fairseq.distributed.utils:call_main",
        "torchrun's processes train together on a CPU too",
        processes.join_torchrun,
    ),
    Patch(
        "fairseq.distributed.utils:distributed_main",
        "processes leave their group before they exit, and do not abort",
        processes.end_process_group,
        reason=PYTHON,
        required=False,
    ),
    *(
        Patch(
            f"fairseq.trainer:Trainer.get_{split}_iterator",
            "processes with parts of the same samples have the same batches",
            context_parallel.share_batches,
        )
        for split in ("train", "valid")
    ),
    Patch(
        "fairseq.trainer:Trainer._prepare_sample",
        "with `--context-parallel`, each process has its part of a sample",
        context_parallel.take_part,
    ),
    Patch(
        "fairseq.checkpoint_utils:load_model_ensemble_and_task",
        "`fairseq-validate` accepts batches that processes share unevenly",
        processes.accept_empty_batches,
    ),
    Patch(
        "fairseq_cli.generate:_main",
        "`--num-shards` and `--shard-id` are used",
        processes.generate_a_shard,
    ),
    Patch(
        "fairseq.checkpoint_utils:prune_state_dict",
        "`--encoder-layers-to-keep` keeps the other side's layers",
        options.prune_each_side,
    ),
    Patch(
        "fairseq.options:parse_args_and_arch",
        "`--bf16` does not add `--tpu`; `--encoder-layers-to-keep` stays text",
        options.keep_gpu,
        reason=PYTHON,
    ),
    Patch(
        "fairseq.distributed.utils:call_main",
        "options that lose a result, and a second training in a `--save-dir`, are errors",
        options.check_first,
    ),
    Patch(
        "fairseq_cli.generate:_main",
        "the same for programs that call it directly",
        options.check_first,
    ),
    Patch(
        "fairseq.trainer:Trainer.load_checkpoint",
        "options that change what the weights mean are an error, other symbols a warning",
        trained_options.check_beginning,
    ),
    Patch(
        "fairseq.utils:load_align_dict",
        "`--replace-unk` without a file copies the source word",
        data_files.copy_unknown,
        required=False,
    ),
    Patch(
        "fairseq.utils:post_process_prediction",
        "`--replace-unk` uses the pairs of `--print-alignment`",
        data_files.replace_unknown,
        required=False,
    ),
    Patch(
        "fairseq.data.encoders.sentencepiece_bpe:SentencepieceBPE.encode",
        "every white space is a space before a line is segmented",
        data_files.segment_spaces,
    ),
    Patch(
        "fairseq.data.encoders.sentencepiece_bpe:SentencepieceBPE.decode",
        "pieces of bytes become the characters that they spell",
        data_files.decode_bytes,
    ),
    Patch(
        "fairseq.data.data_utils:post_process",
        "the same for `--post-process sentencepiece`",
        data_files.join_sentencepiece,
    ),
    Patch(
        "fairseq.data:Dictionary.add_from_file",
        "an empty dictionary is an error",
        data_files.check_dictionary,
    ),
    Patch(
        "fairseq.data.indexed_dataset:make_dataset",
        "`.bin` and `.idx` files that are damaged or of another dictionary are an error",
        data_files.check_dataset,
    ),
    Patch(
        "fairseq_cli.preprocess:main",
        "the text is UTF-8, has no carriage return in a line, and as many lines in both languages",
        text.check_splits,
        when_loaded=True,
    ),
    Patch(
        "fairseq_cli.interactive:buffered_read",
        "a carriage return in a line is an error",
        text.read_in_buffers,
        when_loaded=True,
    ),
    Patch(
        "fairseq.tasks:FairseqTask.filter_indices_by_size",
        "samples that are too long are counted; all of a split is an error",
        samples.count_long_samples,
    ),
    Patch(
        "fairseq.data.data_utils:batch_by_size",
        "the samples of a last batch that is left out are counted",
        samples.count_last_batch,
    ),
    Patch(
        "fairseq.trainer:Trainer.get_train_iterator",
        "a split without targets is an error before the first epoch",
        samples.require_targets,
    ),
    Patch(
        "fairseq.trainer:Trainer.get_valid_iterator",
        "a split without targets is an error before it is validated",
        samples.require_targets,
    ),
    Patch(
        "fairseq.trainer:Trainer.get_valid_iterator",
        "validation keeps the last batch",
        samples.keep_last_batch,
    ),
    Patch(
        "fairseq.tasks.language_modeling:LanguageModelingTask.eval_lm_dataloader",
        "blocks that are longer than the model are an error",
        samples.evaluate_every_block,
    ),
    *(
        Patch(
            f"fairseq.sequence_generator:{generator}.generate",
            "a sentence's limits of length do not depend on its batch",
            _limit_each_sentence,
        )
        for generator in ("SequenceGenerator", "SequenceGeneratorWithAlignment")
    ),
    Patch(
        "fairseq.ngram_repeat_block:NGramRepeatBlock._no_repeat_ngram",
        "`--no-repeat-ngram-size` forbids n-grams at every step",
        _forbid_repeated_ngrams,
    ),
    Patch(
        "fairseq.checkpoint_utils:_torch_persistent_save",
        "a second attempt to write a checkpoint replaces the first",
        training.write_again,
    ),
    Patch(
        "fairseq.checkpoint_utils:torch_persistent_save",
        "a checkpoint that cannot be written is named, and leaves nothing",
        training.name_unwritten,
    ),
    Patch(
        "fairseq.file_io:PathManager.copy",
        "checkpoints get their names when they are complete",
        checkpoints.copy_whole,
    ),
    Patch(
        "fairseq.trainer:Trainer.save_checkpoint",
        "a training that fails before its first update replaces no crash.pt",
        training.save_trained_only,
    ),
    Patch(
        "fairseq_cli.train:get_valid_stats",
        "a model is saved before an unknown `--best-checkpoint-metric` fails",
        training.save_before_missing_metric,
        when_loaded=True,
    ),
    Patch(
        "fairseq.checkpoint_utils:load_checkpoint",
        "a resumed training goes on as it was, up to `--max-update`",
        training.resume,
    ),
    Patch(
        "fairseq.checkpoint_utils:save_checkpoint",
        "`--keep-best-checkpoints` keeps as many as it says",
        training.keep_as_many,
    ),
    Patch(
        "fairseq.data.iterators:EpochBatchIterator.next_epoch_itr",
        "workers know the epoch, so that `masked_lm` masks other tokens in each",
        workers.begin_with_new_workers,
    ),
    Patch(
        "fairseq.data.iterators:BackgroundConsumer",
        "threads that fetch batches stop before the interpreter exits",
        workers.stop_prefetching,
        reason=PYTHON,
        required=False,
    ),
    Patch(
        "multiprocessing.queues:Queue._on_queue_feeder_error",
        "a worker that cannot send a batch ends, and the command with it",
        workers.end_without_batch,
        required=False,
    ),
    *(
        Patch(
            f"fairseq.data.{module}:np",
            "an older numpy's `compat.long` and `percentile`",
            older_numpy.OlderNumpy,
            reason=PYTHON,
            required=False,
        )
        for module in ("data_utils", "language_pair_dataset", "token_block_dataset")
    ),
)

# Replaced by hydra's plugin, before `common.user_dir` is imported.
HYDRA_TRAIN = (
    Patch(
        "fairseq_cli.hydra_train:_hydra_main",
        "`common.user_dir` is imported before the configuration is checked",
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
        "torch's protection lets pass `argparse.Namespace` and numpy's arrays and scalars",
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
        "known warnings about older functions are not shown",
        quiet_known_warnings,
    ),
    Setting(
        "sys.excepthook of fairseq's commands",
        CORRECTNESS,
        "an error is one sentence; status 1 if output cannot be written",
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
    return rows + [(one.where, one.reason, False, one.what) for one in SETTINGS]
