"""hydra imports this module when one of its programs starts; only fairseq-hydra-train is changed.

A wrong configuration ends that command before `common.user_dir` is imported.
"""

from fairseq_memattn.host.messages.handler import install_hydra_excepthook

install_hydra_excepthook()
