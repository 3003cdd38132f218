"""hydra imports this module when one of its programs starts; only fairseq-hydra-train is changed.

A wrong configuration ends that command before `common.user_dir` is imported.
"""

from fairseq_memattn.host.correctness.hydra_train import prepare_hydra_train

prepare_hydra_train()
