"""One fairseq criterion a file. Importing a file registers it."""

from fairseq_memattn.host.patches import prepare_fairseq

prepare_fairseq()
