#!/usr/bin/env bash
# Majority tagging, the GMAT paper's table 1, with a small model: does a memory let sparse attention
# count what a sequence holds?
#
#   recipes/gmat/majority.sh SYSTEM [LENGTH] [PAIRS]
#
#   SYSTEM  chunks-M | lsh-M   the sparse attention, and M memory vectors: chunks-0, chunks-8, lsh-8
#   LENGTH  L, default 512     PAIRS  p, default 1: integers from 1 to 2p
#
#   CHUNK   tokens of a chunk (default: 64)           WORK    results (default: outputs/gmat)
#   BATCH   sequences (default: 16)                   SEED    default 1
#   UPDATES of training (default: 3000)               BIN     programs (default: .venv/bin)
#   DEVICE  flags of fairseq, for example "--fp16" (default: --cpu)
#
# Paths are the repository's unless they begin with a slash. A run that stopped is gone on with; one
# of other UPDATES is refused, and needs another WORK.
source "$(dirname "$0")/../common.sh"
arguments "SYSTEM [LENGTH] [PAIRS]" "$@"
system=$1 length=${2:-512}
pairs=${3:-1}
WORK=${WORK:-outputs/gmat} SEED=${SEED:-1} UPDATES=${UPDATES:-3000} CHUNK=${CHUNK:-64}
BATCH=${BATCH:-16} DEVICE=${DEVICE:---cpu} BIN=${BIN:-.venv/bin}
whole SEED "$SEED"
for name in UPDATES CHUNK BATCH; do whole "$name" "${!name}" 1; done
whole LENGTH "$length"
whole PAIRS "$pairs"
if ! [[ $system =~ ^(chunks|lsh)-([0-9]+)$ ]]; then
  echo "error: SYSTEM must be chunks-M or lsh-M, like chunks-8, but is $system" >&2
  exit 2
fi
sparsity=${BASH_REMATCH[1]} memory=${BASH_REMATCH[2]}
run=$WORK/majority/$length-$pairs-$system-$SEED

task="--user-dir fairseq_memattn $DEVICE --task majority_tagging --length $length --pairs $pairs"
programs
one_budget "$run" "$UPDATES"
if [ ! -e "$run/trained-$UPDATES" ]; then  # fairseq would train for one update more
  "$BIN"/fairseq-train $task --criterion sequence_tagging --arch gmat_bert_tiny --encoder-layers 2 \
    --max-positions "$length" --gmat-sparsity "$sparsity" --gmat-chunk "$CHUNK" \
    --gmat-memory "$memory" --dropout 0.0 --attention-dropout 0.0 --optimizer adam \
    --adam-betas '(0.9, 0.98)' --lr 3e-4 --lr-scheduler polynomial_decay \
    --total-num-update "$UPDATES" --warmup-updates 100 --clip-norm 1.0 --batch-size "$BATCH" \
    --max-update "$UPDATES" --seed "$SEED" --num-workers 0 --required-batch-size-multiple 1 \
    --no-epoch-checkpoints --save-interval-updates 500 --keep-interval-updates 1 \
    --validate-interval-updates 500 --save-dir "$run" --log-format simple --log-interval 100 \
    --log-file "$run.log"
  touch "$run/trained-$UPDATES"
fi

"$BIN"/fairseq-validate $task --path "$run/checkpoint_last.pt" --valid-subset test \
  --batch-size "$BATCH" --required-batch-size-multiple 1 --log-format json |
  grep -o '"test_accuracy": .*"test_exact_match": "[^"]*"' |
  sed -E 's/.*accuracy": "([^"]*)".*match": "([^"]*)"/accuracy \1 %, exact match \2 %/' |
  tee "$run.score"
