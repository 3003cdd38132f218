#!/usr/bin/env bash
# Softmax attention against bounded memories on WikiText-2, with one budget and one seed.
#
#   recipes/abc/wikitext2.sh SYSTEM
#
#   SYSTEM  softmax | abc-64 (ABC-MLP with 64 memory slots) | CONTROL-64 for another control of
#           docs/controls.md, for example linformer-64 | elu-32, rfa-64, t2r-64
#           softmax-post, abc-64-post, ...: layernorm after each block, fairseq's default, not before it
#
#   DATA    folder with wikitext-2/{train,valid,test}.txt (default: data)
#   WORK    results (default: outputs/abc)            SEED     default 1
#   UPDATES default 1200                              DEVICE   flags of fairseq (default: --cpu)
#   LENGTH   tokens of a segment, in training and evaluation, up to 4096 (default: 512). The files of
#            another length are named SYSTEM-LENGTH-SEED
#   CONTEXTS tokens of context to evaluate with (default: 0; "0 480" takes 17 times as long)
#
# A run that stopped is gone on with. Scores of CONTEXTS that it has are kept, and the others added. A run of other
# UPDATES is refused, and needs another WORK.
source "$(dirname "$0")/../common.sh"
arguments "SYSTEM" "$@"
source recipes/abc/language_model.sh
system=$1 UPDATES=${UPDATES:-1200} CONTEXTS=${CONTEXTS:-0} LENGTH=${LENGTH:-512}
whole UPDATES "$UPDATES" 1
segment LENGTH "$LENGTH"
choose_language_model "$system" "$LENGTH"
for context in $CONTEXTS; do
  whole CONTEXTS "$context"
  if [ "$context" -ge "$LENGTH" ]; then
    echo "error: CONTEXTS must be less than the LENGTH $LENGTH of a segment, but has $context" >&2
    exit 2
  fi
done
run=$(language_model "$system" "$LENGTH" "$SEED")

missing= score=$run.score
for context in $CONTEXTS; do
  if ! grep -qs "^test, context $context: " "$run.score"; then missing="$missing $context" score=; fi
done
finished "$score" "$run" "$UPDATES"
kept=$run.score
if [ ! -e "$run/trained-$UPDATES" ]; then missing=$CONTEXTS kept=; fi
wikitext2_words
fit_language_model "$run" "$UPDATES" --criterion adaptive_loss --lr 3e-3 --lr-scheduler cosine \
  --warmup-updates "$(warmup "$UPDATES")"
{
  if [ -e "$kept" ]; then cat "$kept"; fi
  for subset in valid test; do for context in $missing; do
    perplexity=$(language_model_perplexity "$subset" --context-window "$context")
    echo "$subset, context $context: perplexity $perplexity"
  done; done
} | tee "$run.score.unfinished"
mv "$run.score.unfinished" "$run.score"
