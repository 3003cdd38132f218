#!/usr/bin/env bash
# Table 5 of the paper on Multi30k: BLEU by the slots of cross and of causal attention, a run a cell.
#
#   recipes/abc/slot_grid.sh          with the corpus in $DATA/multi30k-en-de
#
#   CROSS   slots of cross attention (default: "8 16 32 64")
#   CAUSAL  slots of causal attention (default: "8 16 32 64")
#
# The other variables are in translation.sh; UPDATES is 2000 unless set. Everything goes to
# $WORK/slot_grid-$UPDATES. A cell that has its score is not run again, one that stopped is gone on with.
source "$(dirname "$0")/../common.sh"
arguments "" "$@"
source recipes/abc/translation.sh
UPDATES=${UPDATES:-2000} CROSS=${CROSS:-8 16 32 64} CAUSAL=${CAUSAL:-8 16 32 64}
whole UPDATES "$UPDATES" 1
for slots in $CROSS $CAUSAL; do
  if ! [[ $slots =~ ^[1-9][0-9]*$ ]]; then
    echo "error: CROSS and CAUSAL must be whole numbers of 1 or more, but have $slots" >&2
    exit 2
  fi
done
grid=$WORK/slot_grid-$UPDATES

for cross in $CROSS; do for causal in $CAUSAL; do
  system=abc-$cross-$causal
  if grep -qs '^BLEU|' "$grid/multi30k/$system-$SEED.score"; then
    echo "$system has been scored"
    continue
  fi
  printf '\n== %s\n' "$system"
  DATA=$DATA WORK=$grid SEED=$SEED UPDATES=$UPDATES DEVICE=$DEVICE BIN=$BIN \
    recipes/abc/multi30k.sh "$system"
done; done

"$BIN"/python recipes/abc/slot_grid.py "$grid/multi30k" --seed "$SEED" --cross $CROSS \
  --causal $CAUSAL --table "$grid/table-$SEED.md" --picture "$grid/heat_map-$SEED.png"
