import sys

from fairseq_memattn.cli import main

sys.exit(main())
