#!/usr/bin/env bash
# Table 3 of the paper: numeric_reasoning.sh for every system and seed, a table and a picture.
#
#   recipes/gmat/numeric_table.sh
#
#   SYSTEMS  default "full untied tied chunks"
#   SEEDS    default "1 2 3"
#
# The other variables are in numeric_reasoning.sh. A run that has its score is not repeated. The table is
# in $WORK/numbers-CHUNK-MEMORY-LAYERS-DECODING-SIZE.md, the picture beside it in a file .png.
source "$(dirname "$0")/../common.sh"
arguments "" "$@"
WORK=${WORK:-outputs/gmat} BIN=${BIN:-.venv/bin} SEEDS=${SEEDS:-1 2 3}
SYSTEMS=${SYSTEMS:-full untied tied chunks} CHUNK=${CHUNK:-16} MEMORY=${MEMORY:-16}
LAYERS=${LAYERS:-4} DECODING=${DECODING:-1} SIZE=${SIZE:-64}
export WORK BIN CHUNK MEMORY LAYERS DECODING SIZE
for seed in $SEEDS; do whole SEEDS "$seed"; done

# row SYSTEM: how numeric_reasoning.sh names it
row() {
  case $1 in
    full) echo "full-$LAYERS-$DECODING-$SIZE" ;;
    chunks) echo "chunks-$CHUNK-$LAYERS-$DECODING-$SIZE" ;;
    tied|untied) echo "$1-$CHUNK-$MEMORY-$LAYERS-$DECODING-$SIZE" ;;
    *) echo "error: SYSTEMS must be of full, chunks, tied and untied, but has $1" >&2; exit 2 ;;
  esac
}

rows=
for system in $SYSTEMS; do rows="$rows $(row "$system")"; done
for seed in $SEEDS; do for system in $SYSTEMS; do
  printf '\n== %s, seed %s\n' "$system" "$seed"
  SEED=$seed recipes/gmat/numeric_reasoning.sh "$system"
done; done
"$BIN"/python recipes/seeds.py "$WORK/numbers" --systems $rows --seeds $SEEDS --values "exact match, %" \
  --output "$WORK/numbers-$CHUNK-$MEMORY-$LAYERS-$DECODING-$SIZE"
