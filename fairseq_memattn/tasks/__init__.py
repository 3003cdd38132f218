"""One fairseq task a file. Importing a file registers it.

fairseq imports the files of `models` and `tasks` in a user directory, but not of `criterions`:
hence the imports below.
"""

from fairseq_memattn.host.patches import prepare_fairseq

prepare_fairseq()

import fairseq_memattn.criterions.attention_transfer  # noqa: E402
import fairseq_memattn.criterions.masked_lm_error  # noqa: E402
import fairseq_memattn.criterions.sequence_tagging  # noqa: E402
import fairseq_memattn.criterions.span_answering  # noqa: E402, F401
