"""One fairseq criterion a file. Importing a file registers it."""

from fairseq_memattn.compat import prepare_fairseq

prepare_fairseq()
