"""What registration changes in fairseq."""

from __future__ import annotations

import functools

from fairseq_memattn.host.checkpoints import (
    allow_fairseq_globals,
    copy_checkpoints_whole,
    explain_checkpoint_errors,
)
from fairseq_memattn.host.correctness.bleu import warn_of_tokenizers
from fairseq_memattn.host.correctness.data_files import check_data_files
from fairseq_memattn.host.correctness.failed_training import (
    explain_divergence,
    explain_missing_metrics,
    save_only_trained_models,
)
from fairseq_memattn.host.correctness.finished_training import leave_finished_trainings
from fairseq_memattn.host.correctness.older_numpy import restore_older_numpy
from fairseq_memattn.host.correctness.options import check_configurations
from fairseq_memattn.host.correctness.prefetching import end_prefetching_in_time
from fairseq_memattn.host.correctness.processes import repair_distributed_training
from fairseq_memattn.host.correctness.samples import count_omitted_samples
from fairseq_memattn.host.correctness.text import check_text_of_commands
from fairseq_memattn.host.correctness.trained_options import (
    explain_weights_of_trainings,
)
from fairseq_memattn.host.correctness.workers import begin_epochs_with_new_workers
from fairseq_memattn.host.installation import check_environment
from fairseq_memattn.host.messages.bleu_note import explain_bleu
from fairseq_memattn.host.messages.handler import install_excepthook
from fairseq_memattn.host.messages.logs import log_each_line_once, quiet_known_warnings
from fairseq_memattn.host.safety import untrusted


@functools.cache
def prepare_fairseq() -> None:
    """Checks the installation, then repairs fairseq for today's Python, torch and numpy.

    This is the complete list of what registration changes outside this package. A second call
    does nothing.
    """
    check_environment()
    allow_fairseq_globals()
    untrusted.read_literals_only()
    untrusted.check_archives()
    untrusted.refuse_repositories()
    explain_checkpoint_errors()
    explain_weights_of_trainings()
    repair_distributed_training()
    check_configurations()
    check_data_files()
    check_text_of_commands()
    count_omitted_samples()
    save_only_trained_models()
    explain_divergence()
    explain_missing_metrics()
    leave_finished_trainings()
    explain_bleu()
    from fairseq_memattn.host.correctness.lengths import limit_each_sentence

    limit_each_sentence()
    warn_of_tokenizers()
    restore_older_numpy()
    end_prefetching_in_time()
    begin_epochs_with_new_workers()
    copy_checkpoints_whole()
    log_each_line_once()
    quiet_known_warnings()
    install_excepthook()
