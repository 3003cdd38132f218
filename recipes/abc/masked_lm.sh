#!/usr/bin/env bash
# A masked language model with softmax attention gets a bounded memory: what conversion breaks, and
# how far continued training mends it. WikiText-2, small models, one seed.
#
#   recipes/abc/masked_lm.sh [CONTROL-SLOTS]
#
#   CONTROL-SLOTS  default: mlp-16; another control of docs/controls.md, for example window-16
#
#   DATA       folder with wikitext-2/{train,valid,test}.txt (default: data)
#   WORK       results (default: outputs/abc)
#   UPDATES    of the softmax model (default: 4000)
#   CONTINUED  updates after conversion (default: 1000); the softmax model goes on for as many, too
#   SEED       default 1             DEVICE  flags of fairseq (default: --cpu)
#
# A step that is done is not done again, and training goes on where it stopped.
source "$(dirname "$0")/../common.sh"
arguments "[CONTROL-SLOTS]" "$@"
source recipes/wikitext2_pieces.sh
system=${1:-mlp-16}
DATA=${DATA:-data} WORK=${WORK:-outputs/abc} SEED=${SEED:-1} UPDATES=${UPDATES:-4000}
CONTINUED=${CONTINUED:-1000} DEVICE=${DEVICE---cpu} BIN=${BIN:-.venv/bin}
work=$WORK/masked_lm data=$WORK/masked_lm/data
softmax=$work/softmax-$UPDATES-$SEED run=$work/$system-$UPDATES-$CONTINUED-$SEED

if ! [[ $system =~ ^([a-z0-9_]+)-([0-9]+)$ ]]; then
  echo "error: CONTROL-SLOTS must be a control and a number, like mlp-16, but is $system" >&2
  exit 2
fi
control=${BASH_REMATCH[1]} slots=${BASH_REMATCH[2]}
arch=abc_${control}_roberta
case $arch in abc_elu_*|abc_rfa_*|abc_t2r_*) arch=${arch#abc_} ;; esac
for number in "$UPDATES" "$CONTINUED" "$SEED"; do
  if ! [[ $number =~ ^[1-9][0-9]*$ ]]; then
    echo "error: UPDATES, CONTINUED and SEED must be whole numbers above 0, but one is $number" >&2
    exit 2
  fi
done
programs
if ! "$BIN"/python -c 'import sys; from fairseq_memattn.attention.controls import CONTROLS, KERNEL_ATTENTION
sys.exit(sys.argv[1] not in CONTROLS | KERNEL_ATTENTION)' "$control"; then
  echo "error: there is no control $control (docs/controls.md)" >&2
  exit 2
fi
wikitext2_pieces "$data" 2000

train() { # FOLDER UPDATES WARMUP ARCH FLAGS...
  local folder=$1 updates=$2 warmup=$3 arch=$4
  shift 4
  if [ -e "$folder/trained" ]; then return; fi  # fairseq would train for one update more
  "$BIN"/fairseq-train "$data/bin" --user-dir fairseq_memattn $DEVICE --task masked_lm \
    --criterion masked_lm --arch "$arch" --encoder-layers 4 --encoder-embed-dim 128 \
    --encoder-ffn-embed-dim 512 --encoder-attention-heads 4 --encoder-normalize-before \
    --dropout 0.0 --attention-dropout 0.0 --optimizer adam --adam-betas '(0.9, 0.98)' \
    --lr 2e-3 --lr-scheduler polynomial_decay --total-num-update "$updates" \
    --warmup-updates "$warmup" --max-update "$updates" --clip-norm 1.0 --tokens-per-sample 128 \
    --sample-break-mode none --max-tokens 2048 --seed "$SEED" --num-workers 0 \
    --required-batch-size-multiple 1 --no-epoch-checkpoints --save-interval-updates 500 \
    --keep-interval-updates 1 --validate-interval-updates 500 --log-format simple \
    --log-interval 100 --save-dir "$folder" --log-file "$folder.log" "$@"
  touch "$folder/trained"
}

perplexity() { # LABEL CHECKPOINT
  "$BIN"/fairseq-validate "$data/bin" --user-dir fairseq_memattn $DEVICE --task masked_lm \
    --path "$2" --valid-subset test --max-tokens 4096 --required-batch-size-multiple 1 2>&1 |
    grep -o "ppl [0-9.]*" | tail -1 | sed "s/^/$1: /"
}

train "$softmax" "$UPDATES" 300 roberta
if [ ! -e "$run.converted.pt" ]; then
  "$BIN"/memattn convert "$data/bin" --path "$softmax/checkpoint_last.pt" --arch "$arch" \
    --output "$run.converted.pt" --seed "$SEED" --flags="--abc-encoder-slots $slots"
fi
train "$run" "$CONTINUED" 100 "$arch" --abc-encoder-slots "$slots" \
  --finetune-from-model "$run.converted.pt"
train "$softmax-$CONTINUED" "$CONTINUED" 100 roberta \
  --finetune-from-model "$softmax/checkpoint_last.pt"

{
  perplexity "softmax, $UPDATES updates" "$softmax/checkpoint_last.pt"
  perplexity "softmax, $CONTINUED updates more" "$softmax-$CONTINUED/checkpoint_last.pt"
  perplexity "$system, converted" "$run.converted.pt"
  perplexity "$system, $CONTINUED updates more" "$run/checkpoint_last.pt"
} | tee "$run.score"
