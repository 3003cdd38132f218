"""One fairseq optimizer a file. Importing a file registers it with fairseq."""

from fairseq_memattn.host.patches import prepare_fairseq

prepare_fairseq()
