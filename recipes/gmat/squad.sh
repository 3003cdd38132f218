#!/usr/bin/env bash
# SQuAD 1.1 with answers as spans (GMAT paper, section 4.4): the rows of its table 7 with a small
# model. Without a pretrained one, FROM, it is to see it run, not for its scores.
#
#   recipes/gmat/squad.sh SYSTEM
#
#   SYSTEM   CHUNK-MEMORY, for example 64-16: chunks of 64 tokens, a memory of 16; 384-0 is dense
#            attention; 384-16-2 keeps nothing but the memory after 2 of the 4 layers
#
#   DATA     folder with squad/: dev-v1.1.json, and to train on the one file train-*.json (default: data)
#   WORK     results (default: outputs/gmat)        SEED    default 1
#   UPDATES  of 12 windows (default: 3000)          BIN     programs (default: .venv/bin)
#   FROM     masked language model to start from, of the same sizes and of the pieces that this script
#            makes in WORK/squad (default: none)
#   DEVICE   flags of fairseq, for example "--fp16" (default: --cpu)
#
# Paths are the repository's unless they begin with a slash. A run that stopped is gone on with; one
# of other UPDATES or FROM is refused, and needs another WORK.
source "$(dirname "$0")/../common.sh"
arguments "SYSTEM" "$@"
source recipes/gmat/spans_system.sh
system=$1
DATA=${DATA:-data} WORK=${WORK:-outputs/gmat} SEED=${SEED:-1} UPDATES=${UPDATES:-3000} FROM=${FROM:-}
DEVICE=${DEVICE---cpu} BIN=${BIN:-.venv/bin}
whole SEED "$SEED"
whole UPDATES "$UPDATES" 1
check_spans_system "$system"
arch="--arch gmat_bert_tiny --gmat-chunk $chunk --gmat-memory $memory
  --gmat-compress-after ${compressed:-0}"
if [ -n "$FROM" ] && [ ! -f "$FROM" ]; then
  echo "error: FROM must be a model of fairseq, but there is no file $FROM" >&2
  exit 2
fi
gold=$DATA/squad/dev-v1.1.json
train=("$DATA"/squad/train-*.json)
if [ ! -f "$gold" ] || [ ${#train[@]} -ne 1 ] || [ ! -f "${train[0]}" ]; then
  echo "error: $DATA/squad must hold dev-v1.1.json and one train-*.json; set DATA" >&2
  exit 2
fi
data=$WORK/squad run=$WORK/squad/$system-$SEED
schedule="--optimizer adam --adam-betas (0.9,0.999) --weight-decay 0.01 --clip-norm 1.0 --lr 3e-4
  --lr-scheduler polynomial_decay --total-num-update $UPDATES --warmup-updates $((UPDATES / 10))
  --dropout 0.1 --attention-dropout 0.1 --batch-size 12"

programs
"$BIN"/memattn prepare squad --output "$data" --spans --vocab-size 4000 \
  --normalization nmt_nfkc \
  --files train="${train[0]}" valid="$gold"

one_setting "$run" FROM
trained "$run" "$UPDATES" "$data/bin" --user-dir fairseq_memattn $arch $schedule $DEVICE \
  --task span_answering --criterion span_answering --window 384 --stride 128 --max-question 64 \
  --disable-validation ${FROM:+--finetune-from-model "$FROM"}

case $DEVICE in *--cpu*) where=--cpu ;; *) where= ;; esac
"$BIN"/memattn spans "$data/bin" --path "$run/checkpoint_last.pt" $where --subset valid \
  --n-best 20 --max-answer 30 --predictions "$run.predictions.json" | tee "$run.score.unfinished"
mv "$run.score.unfinished" "$run.score"
