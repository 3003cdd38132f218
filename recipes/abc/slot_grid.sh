#!/usr/bin/env bash
# Table 5 of the paper on Multi30k: BLEU by the slots of cross and of causal attention, a run a cell.
#
#   recipes/abc/slot_grid.sh          with the corpus in $DATA/multi30k-en-de
#
#   CROSS   slots of cross attention (default: "8 32")
#   CAUSAL  slots of causal attention (default: "8 32"); the paper's table has 8, 16, 32 and 64 for both
#   SEEDS   default "1 2 3"
#
# The other variables are in the head of recipes/abc/translation.sh; UPDATES is 2000 unless set. A run
# that has its score is not repeated. The table is in $WORK/slot_grid.md, the heat map in
# $WORK/slot_grid.png. A run takes five to nine minutes on one core.
source "$(dirname "$0")/../common.sh"
arguments "" "$@"
source recipes/abc/translation.sh
UPDATES=${UPDATES:-2000} CROSS=${CROSS:-8 32} CAUSAL=${CAUSAL:-8 32} SEEDS=${SEEDS:-1 2 3}
whole UPDATES "$UPDATES" 1
for slots in $CROSS; do whole CROSS "$slots" 1; done
for slots in $CAUSAL; do whole CAUSAL "$slots" 1; done
for seed in $SEEDS; do whole SEEDS "$seed"; done

for seed in $SEEDS; do for cross in $CROSS; do for causal in $CAUSAL; do
  system=abc-$cross-$causal
  printf '\n== %s, seed %s\n' "$system" "$seed"
  DATA=$DATA WORK=$WORK SEED=$seed UPDATES=$UPDATES DEVICE=$DEVICE BIN=$BIN \
    recipes/abc/multi30k.sh "$system"
done; done; done

"$BIN"/python recipes/abc/slot_grid.py "$WORK/multi30k" --seeds $SEEDS --cross $CROSS \
  --causal $CAUSAL --table "$WORK/slot_grid.md" --picture "$WORK/slot_grid.png"
