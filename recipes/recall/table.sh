#!/usr/bin/env bash
# What a state of constant size recalls: run.sh for every system and seed, tables and a picture.
#
#   recipes/recall/table.sh
#
#   SYSTEMS  of multi-query recall (default: the list below)
#   NEEDLES  of needles in a haystack (default: the list below)
#   SEEDS    default "1 2 3"
#
# The other variables are in run.sh. A run that has its result is not repeated. The tables are in
# $WORK/recall.md, the picture in $WORK/recall.png. All runs take 5.5 hours on one core.
source "$(dirname "$0")/../common.sh"
arguments "" "$@"
SYSTEMS=${SYSTEMS-softmax mlp-30 mlp-16 mlp-14 mlp-8 mlp-4 mlp-16-sigmoid mlp-16-relu gated-16 window-16 \
  window-32 linformer-30 linformer-16 linformer-14 random-30 random-16 random-14 clustering-16 \
  compressive-16 global-16 local_global-16 strided-16 dilated-16 elu-16 rfa-32 rfa-16 t2r-32 \
  mlp-8+mlp-8 mlp-8+window-8 window-8+mlp-8 gated-8+mlp-8 gated-16+softmax}
NEEDLES=${NEEDLES-softmax mlp-16 mlp-14 gated-16 window-16 linformer-16 random-16 clustering-16 compressive-16 \
  global-16 local_global-16 strided-16 dilated-16 elu-16 rfa-16 t2r-32}
SEEDS=${SEEDS-1 2 3} BIN=${BIN:-.venv/bin}
export WORK=${WORK:-outputs/recall} BIN
for seed in $SEEDS; do whole SEEDS "$seed"; done
for system in $SYSTEMS $NEEDLES; do ONLY_CHECK=yes recipes/recall/run.sh needle "$system"; done

for seed in $SEEDS; do
  for system in $SYSTEMS; do SEED=$seed recipes/recall/run.sh multi_query "$system"; done
  for system in $NEEDLES; do SEED=$seed recipes/recall/run.sh needle "$system"; done
done
"$BIN"/python recipes/recall/table.py "$WORK" --seeds $SEEDS --output "$WORK/recall"
