#!/usr/bin/env bash
# From a trained model with softmax attention to a bounded memory, with one budget and one seed.
#
#   recipes/abc/conversion.sh KIND SYSTEM METHOD
#
#   KIND    translation     Multi30k English-German, in $DATA/multi30k-en-de
#           language_model  WikiText-2, in $DATA/wikitext-2, segments of 512 tokens
#           masked_lm       WikiText-2's masked words, blocks of 64 pieces
#   SYSTEM  of multi30k.sh, wikitext2.sh (without -post) or masked_lm.sh; softmax goes on without a conversion
#   METHOD  plain              converted, then trained as usual
#           transfer           converted, then attention transfer to the control for TRANSFERRED
#                              updates (docs/controls.md), then trained as usual
#           low-rank           as plain, but of all weights only the control and updates of rank
#                              RANK to the projections of the attention learn
#           transfer-low-rank  as transfer, with low-rank for the training as usual
#
#   UPDATES      of the softmax model (default: that of its recipe)
#   CONTINUED    updates after the conversion, those of the transfer included (default: 5 % of UPDATES)
#   TRANSFERRED  updates of attention transfer (default: two thirds of CONTINUED)
#   RANK         default 8
#   LR           of the training after the conversion (default: 1e-3 if plain or low-rank, else 1e-4;
#                1e-4 for softmax, clustering and windows, which begin near the minimum)
#
# DATA, WORK, SEED, DEVICE and BIN are in the head of recipes/abc/translation.sh. The score is in
# $WORK/conversion/KIND/SYSTEM-METHOD-SEED.score, that of softmax attention in softmax-SEED.score. A step
# that is done is not done again; one of other CONTINUED, TRANSFERRED, RANK or LR is refused, and needs
# another WORK.
source "$(dirname "$0")/../common.sh"
arguments "KIND SYSTEM METHOD" "$@"
source recipes/abc/conversion_models.sh
kind=$1 system=$2 method=$3
case $kind in
  translation|language_model|masked_lm) ;;
  *) echo "error: KIND must be translation, language_model or masked_lm, but is $kind" >&2; exit 2 ;;
esac
"${kind}_chosen" "$system"
check_method "$system" "$method"
whole UPDATES "$UPDATES" 20
CONTINUED=${CONTINUED:-$((UPDATES / 20))}
whole CONTINUED "$CONTINUED" 1
if [ -n "${LR:-}" ]; then positive LR "$LR"; fi
TRANSFERRED=${TRANSFERRED:-$((2 * CONTINUED / 3))} RANK=${RANK:-8}
case $system in softmax|clustering-*|window-*) LR=${LR:-1e-4} ;; esac
whole RANK "$RANK" 1
case $method in
  plain|low-rank) TRANSFERRED=0 LR=${LR:-1e-3} ;;
  transfer|transfer-low-rank)
    LR=${LR:-1e-4}
    whole TRANSFERRED "$TRANSFERRED" 1
    if [ "$TRANSFERRED" -ge "$CONTINUED" ]; then
      echo "error: TRANSFERRED must be less than CONTINUED $CONTINUED, but is $TRANSFERRED" >&2
      exit 2
    fi ;;
esac
low_rank=
case $method in
  *low-rank) low_rank="--abc-low-rank $RANK" ;;
  *) RANK=0 ;;
esac

checked
scores=$WORK/conversion/$kind folder=$WORK/conversion/$kind/$system-$method-$SEED
"${kind}_softmax"
finished "$folder.score" "$folder/tuned" "$((CONTINUED - TRANSFERRED))" TRANSFERRED RANK LR
mkdir -p "$folder"
start=$softmax/checkpoint_last.pt
if [ "$system" != softmax ]; then
  start=$folder/converted.pt
  if [ ! -e "$start" ]; then
    "$BIN"/memattn convert "$data/bin" --path "$softmax/checkpoint_last.pt" --output "$start" \
      --arch "$(cut -d' ' -f2 <<< "$arch")" --seed "$SEED" --flags="$(cut -d' ' -f3- <<< "$arch")"
  fi
fi

# go_on FOLDER UPDATES FLAGS...: trains the checkpoint $start, and makes the result the next start
go_on() {
  "${kind}_fit" "$1" "$2" --finetune-from-model "$start" --lr-scheduler polynomial_decay \
    --total-num-update "$2" --warmup-updates 5 "${@:3}"
  start=$1/checkpoint_last.pt
}

loss=${kind}_loss
one_setting "$folder/tuned" TRANSFERRED RANK LR
if [ "$TRANSFERRED" -gt 0 ]; then
  go_on "$folder/transfer" "$TRANSFERRED" --criterion attention_transfer \
    --attention-teacher "$softmax/checkpoint_last.pt" --lr 0.1
fi
go_on "$folder/tuned" "$((CONTINUED - TRANSFERRED))" --criterion ${!loss} $low_rank --lr "$LR"

if [ ! -e "$scores/softmax-$SEED.score" ]; then
  run=$softmax
  "${kind}_score" > "$scores/softmax.$$"
  mv "$scores/softmax.$$" "$scores/softmax-$SEED.score"
fi
run=$folder/tuned
"${kind}_score" | tee "$folder.score.unfinished"
mv "$folder.score.unfinished" "$folder.score"
