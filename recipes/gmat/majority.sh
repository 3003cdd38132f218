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
#   ROUNDS  of hashing (default: 2)                   SEED    default 1
#   BATCH   sequences of 512 tokens, or others with as many in all (default: 16)
#   SHORT   updates first, on sequences of L/4 in chunks of CHUNK/4 (default: 1000)
#   UPDATES of training after those (default: 1000)   BIN     programs (default: .venv/bin)
#   PROJECTIONS by which the memory is updated: none of its own, qkv, qkvo (default: none)
#   DEVICE  flags of fairseq, for example "--fp16" (default: --cpu)
#
# With L above 512, the model of L/4 is trained first, in the same way; UPDATES follow, of as many
# tokens and at a rate of 5e-4 * 512 / L.
# Paths are the repository's unless they begin with a slash. A run that stopped is gone on with; one
# of another SHORT, UPDATES, CHUNK, ROUNDS, BATCH or PROJECTIONS is refused, and needs another WORK.
source "$(dirname "$0")/../common.sh"
arguments "SYSTEM [LENGTH] [PAIRS]" "$@"
system=$1 length=${2:-512}
pairs=${3:-1}
WORK=${WORK:-outputs/gmat} SEED=${SEED:-1} SHORT=${SHORT:-1000} UPDATES=${UPDATES:-1000}
CHUNK=${CHUNK:-64} ROUNDS=${ROUNDS:-2} BATCH=${BATCH:-16} PROJECTIONS=${PROJECTIONS:-none}
DEVICE=${DEVICE---cpu} BIN=${BIN:-.venv/bin}
whole SEED "$SEED"
for name in SHORT UPDATES CHUNK ROUNDS BATCH; do whole "$name" "${!name}" 1; done
whole LENGTH "$length" 1
whole PAIRS "$pairs" 1
for number in "LENGTH $length" "CHUNK $CHUNK"; do
  if [ $((${number#* } % 4)) -ne 0 ]; then
    echo "error: ${number% *} must be a multiple of 4, but is ${number#* }" >&2
    exit 2
  fi
done
for ((shorter = length; shorter > 512 && shorter % 4 == 0; shorter /= 4)); do :; done
if [ $((shorter % 4)) -ne 0 ]; then
  echo "error: LENGTH must be a multiple of 4, and so must the lengths that are trained before it, each a quarter" \
    "of the next, but is $length, and $shorter is not" >&2
  exit 2
fi
if ! [[ $system =~ ^(chunks|lsh)-([0-9]+)$ ]]; then
  echo "error: SYSTEM must be chunks-M or lsh-M, like chunks-8, but is $system" >&2
  exit 2
fi
case $PROJECTIONS in
  none | qkv | qkvo) ;;
  *) echo "error: PROJECTIONS must be none, qkv or qkvo, but is $PROJECTIONS" >&2; exit 2 ;;
esac
checked
sparsity=${BASH_REMATCH[1]} memory=${BASH_REMATCH[2]}
run=$WORK/majority/$length-$pairs-$system-$SEED
task="--user-dir fairseq_memattn $DEVICE --task majority_tagging --pairs $pairs"
programs

# tagged FOLDER UPDATES LENGTH CHUNK BATCH FLAGS...
tagged() {
  trained "$1" "$2" $task --length "$3" --criterion sequence_tagging --arch gmat_bert_tiny \
    --encoder-layers 2 --encoder-normalize-before --no-token-positional-embeddings \
    --max-positions "$3" --gmat-sparsity "$sparsity" --gmat-chunk "$4" --gmat-memory "$memory" \
    --gmat-lsh-rounds "$ROUNDS" --gmat-memory-projections "$PROJECTIONS" \
    --dropout 0.0 --attention-dropout 0.0 --optimizer adam --adam-betas '(0.9, 0.98)' \
    --warmup-updates 100 --clip-norm 1.0 --batch-size "$5" "${@:6}"
}

# batch LENGTH: sequences of an update
batch() { echo $((BATCH * 512 > $1 ? BATCH * 512 / $1 : 1)); }

# rate LENGTH: of learning; fewer long sequences make an update, and each is as noisy as a short one
rate() { awk -v size="$1" 'BEGIN { print 5e-4 * (size > 512 ? 512 / size : 1) }'; }

one_budget "$run" "$UPDATES"
one_setting "$run" SHORT CHUNK ROUNDS BATCH PROJECTIONS
finished "$run.score" "$run" "$UPDATES"
if [ "$length" -gt 512 ]; then
  export WORK SEED SHORT UPDATES CHUNK ROUNDS BATCH PROJECTIONS DEVICE BIN
  "$script" "$system" $((length / 4)) "$pairs"
  start=$WORK/majority/$((length / 4))-$pairs-$system-$SEED
else
  start=$run/short
  one_budget "$start" "$SHORT"
  one_setting "$start" CHUNK ROUNDS BATCH PROJECTIONS
  tagged "$start" "$SHORT" $((length / 4)) $((CHUNK / 4)) "$(batch $((length / 4)))" \
    --lr 1e-3 --lr-scheduler polynomial_decay --total-num-update $((10 * SHORT))
fi
tagged "$run" "$UPDATES" "$length" "$CHUNK" "$(batch "$length")" \
  --lr "$(rate "$length")" --lr-scheduler polynomial_decay --total-num-update "$UPDATES" \
  --finetune-from-model "$start/checkpoint_last.pt"

"$BIN"/fairseq-validate $task --length "$length" --path "$run/checkpoint_last.pt" \
  --valid-subset test --batch-size "$(batch "$length")" --required-batch-size-multiple 1 --log-format json |
  grep -o '"test_accuracy": .*"test_exact_match": "[^"]*"' |
  sed -E 's/.*accuracy": "([^"]*)".*match": "([^"]*)"/accuracy \1 %, exact match \2 %/' |
  tee "$run.score.unfinished"
mv "$run.score.unfinished" "$run.score"
