#!/usr/bin/env bash
# Softmax attention against bounded memories on WikiText-2's masked words, with one budget and one seed.
#
#   recipes/abc/masked_lm.sh SYSTEM      with the corpus in $DATA/wikitext-2
#
#   SYSTEM  softmax | abc-16 (ABC-MLP with 16 memory slots) | CONTROL-16 for another control of
#           docs/controls.md, for example clustering-16
#
#   DATA    folder with wikitext-2/{train,valid,test}.txt (default: data)
#   WORK    results (default: outputs/abc)            SEED     default 1
#   UPDATES of 4096 pieces (default: 2500)            DEVICE   flags of fairseq (default: --cpu)
#
# The learning rate rises for 12 % of the updates, is constant for 63 %, and falls.
# A run that stopped is gone on with, and one that has its score shows it; one of other UPDATES is refused, and
# needs another WORK.
source "$(dirname "$0")/../common.sh"
arguments "SYSTEM" "$@"
source recipes/abc/masked_model.sh
system=$1 UPDATES=${UPDATES:-2500}
whole UPDATES "$UPDATES" 4
choose_masked_model "$system"
data=$WORK/masked_lm/data run=$WORK/masked_lm/$system-$SEED

finished "$run.score" "$run" "$UPDATES"
wikitext2_pieces "$data" 2000
fit_masked_model "$run" "$UPDATES" --criterion masked_lm --lr 2e-3 --lr-scheduler tri_stage \
  --phase-ratio '[0.12, 0.63, 0.25]' --final-lr-scale 0.01
masked_perplexity | tee "$run.score.unfinished"
mv "$run.score.unfinished" "$run.score"
