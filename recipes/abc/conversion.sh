#!/usr/bin/env bash
# From a trained translation model with softmax attention to a bounded memory, on Multi30k.
#
#   recipes/abc/conversion.sh SYSTEM METHOD      with the corpus in $DATA/multi30k-en-de
#
#   SYSTEM     as in translation.sh; softmax goes on without a conversion, for comparison
#   METHOD     plain: converted, then trained as usual | transfer: converted, then attention transfer
#              to the control for TRANSFERRED updates (docs/controls.md), then trained as usual
#
#   CONTINUED    updates after the conversion, those of the transfer included (default: 100, 5 % of 2000)
#   TRANSFERRED  updates of attention transfer (default: two thirds of CONTINUED)
#   LR           of the training after the conversion (default: 1e-3 if plain, else 1e-4)
#
# The other variables are in translation.sh; UPDATES, of the softmax model, is 2000 unless set. The score
# is in $WORK/conversion/SYSTEM-METHOD-CONTINUED-SEED.score. A step that is done is not done again; one of
# other TRANSFERRED or LR is refused, and needs another WORK.
source "$(dirname "$0")/../common.sh"
arguments "SYSTEM METHOD" "$@"
source recipes/abc/translation.sh
system=$1 method=$2 UPDATES=${UPDATES:-2000} CONTINUED=${CONTINUED:-100}
whole CONTINUED "$CONTINUED" 1
TRANSFERRED=${TRANSFERRED:-$((2 * CONTINUED / 3))}
whole TRANSFERRED "$TRANSFERRED" 1
choose_arch "$system"
case $method in
  plain) TRANSFERRED=0 LR=${LR:-1e-3} ;;
  transfer)
    LR=${LR:-1e-4}
    if [ "$system" = softmax ]; then
      echo "error: METHOD must be plain for softmax, which has no bounded memory" >&2
      exit 2
    fi
    if [ "$TRANSFERRED" -ge "$CONTINUED" ]; then
      echo "error: TRANSFERRED must be less than CONTINUED $CONTINUED, but is $TRANSFERRED" >&2
      exit 2
    fi ;;
  *) echo "error: METHOD must be plain or transfer, but is $method" >&2; exit 2 ;;
esac
converted=$arch raw=$DATA/multi30k-en-de data=$WORK/multi30k

DATA=$DATA WORK=$WORK SEED=$SEED UPDATES=$UPDATES DEVICE=$DEVICE BIN=$BIN \
  recipes/abc/multi30k.sh softmax
softmax=$WORK/multi30k/softmax-$SEED/checkpoint_last.pt
run=$WORK/conversion/$system-$method-$CONTINUED-$SEED
mkdir -p "$run"

# go_on FOLDER UPDATES FLAGS...: trains the checkpoint $start, and makes the result the next start
go_on() {
  local folder=$1 updates=$2
  shift 2
  one_budget "$folder" "$updates"
  if [ ! -e "$folder/trained-$updates" ]; then
    "$BIN"/fairseq-train "$data/bin" --user-dir fairseq_memattn $converted $DEVICE \
      --encoder-layers 2 --decoder-layers 2 --encoder-embed-dim 128 --encoder-ffn-embed-dim 512 \
      --encoder-attention-heads 4 --decoder-attention-heads 4 --share-all-embeddings --dropout 0.1 \
      --finetune-from-model "$start" --optimizer adam --adam-betas '(0.9, 0.98)' \
      --lr-scheduler polynomial_decay --total-num-update "$updates" --warmup-updates 5 \
      --clip-norm 1.0 --max-tokens 1024 --max-update "$updates" --seed "$SEED" --num-workers 0 \
      --required-batch-size-multiple 1 --no-epoch-checkpoints --save-interval 1000 \
      --validate-interval 1000 --save-dir "$folder" --log-format simple --log-interval 10 \
      --log-file "$folder.log" "$@"
    touch "$folder/trained-$updates"
  fi
  start=$folder/checkpoint_last.pt
}

start=$softmax
if [ "$system" != softmax ]; then
  start=$run/converted.pt
  if [ ! -e "$start" ]; then
    "$BIN"/memattn convert "$data/bin" --path "$softmax" --arch "$(cut -d' ' -f2 <<< "$arch")" \
      --output "$start" --seed "$SEED" --flags="$(cut -d' ' -f3- <<< "$arch")"
  fi
fi
one_setting "$run/tuned" TRANSFERRED LR
if [ "$TRANSFERRED" -gt 0 ]; then
  go_on "$run/transfer" "$TRANSFERRED" --criterion attention_transfer \
    --attention-teacher "$softmax" --lr 0.1
fi
go_on "$run/tuned" "$((CONTINUED - TRANSFERRED))" --criterion label_smoothed_cross_entropy \
  --label-smoothing 0.1 --lr "$LR"

run=$run/tuned
translate
{
  perplexity
  "$BIN"/memattn score --generated "$run.generated" --reference "$raw/test_2016_flickr.de"
} | tee "$WORK/conversion/$system-$method-$CONTINUED-$SEED.score"
