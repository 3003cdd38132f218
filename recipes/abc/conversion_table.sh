#!/usr/bin/env bash
# What conversions to a bounded memory keep: conversion.sh for every system, method and seed, a table and
# a picture.
#
#   recipes/abc/conversion_table.sh [KIND]
#
#   KIND         translation (default) | language_model | masked_lm
#   CONVERSIONS  SYSTEM:METHOD of conversion.sh (default: the lists below)
#   SEEDS        default "1 2 3"
#
# The other variables, and where the corpora are, are in conversion.sh; CONTINUED is 5 % of UPDATES unless
# set. A run that has its score is not repeated. The table is in $WORK/conversion-KIND.md, the picture in
# $WORK/conversion-KIND.png. A model of translation with softmax attention takes about 7 minutes on one
# core, one of language_model 18, one of masked_lm 13, and a conversion one to five.
source "$(dirname "$0")/../common.sh"
arguments "[KIND]" "$@"
source recipes/abc/conversion_models.sh
kind=${1:-translation} SEEDS=${SEEDS:-1 2 3} CONTINUED=${CONTINUED:-}
case $kind in
  translation)
    rows="softmax:plain clustering-32-32:plain clustering-16-16:plain window-16-16:plain
      abc-64-64:transfer abc-32-32:transfer abc-32-32:transfer-low-rank abc-32-32:plain
      abc-32-32:low-rank abc-16-16:transfer abc-16-16:plain linformer-32-32:transfer
      linformer-32-32:plain random-32-32:plain gated-32-32:transfer t2r-32-32:transfer t2r-32-32:plain
      elu-32-32:plain rfa-32-32:plain local_global-32-32:plain dilated-32-32:plain
      strided-32-32:plain global-32-32:plain compressive-32-32:plain workspace-32-0:plain"
    values="BLEU perplexity chrF" relative= ;;
  language_model)
    rows="softmax:plain gated-64:plain gated-64:transfer clustering-64:plain window-64:plain
      abc-64:transfer abc-64:transfer-low-rank abc-64:plain local_global-64:plain t2r-64:transfer
      t2r-64:plain strided-64:plain dilated-64:plain compressive-64:plain rfa-64:plain elu-64:plain
      global-64:plain random-64:plain linformer-64:plain"
    values=perplexity relative=--relative ;;
  masked_lm)
    rows="softmax:plain window-16:plain local_global-16:plain clustering-32:plain strided-16:plain
      compressive-16:plain abc-32:transfer clustering-16:plain workspace-16:plain linformer-16:transfer
      dilated-16:plain t2r-16:transfer t2r-16:plain abc-16:transfer gated-16:transfer global-16:plain
      abc-16:plain abc-16:transfer-low-rank elu-16:plain rfa-16:plain random-16:plain
      linformer-16:plain"
    values=perplexity relative=--relative ;;
  *) echo "error: KIND must be translation, language_model or masked_lm, but is $kind" >&2; exit 2 ;;
esac
CONVERSIONS=${CONVERSIONS:-$rows}
for seed in $SEEDS; do whole SEEDS "$seed"; done
"${kind}_chosen" softmax
for conversion in $CONVERSIONS; do
  ONLY_CHECK=yes recipes/abc/conversion.sh "$kind" "${conversion%:*}" "${conversion#*:}"
done

systems=softmax folder=$WORK/conversion/$kind
for conversion in $CONVERSIONS; do
  system=${conversion%:*} method=${conversion#*:}
  systems="$systems $system-$method"
  for seed in $SEEDS; do
    printf '\n== %s, %s, seed %s\n' "$system" "$method" "$seed"
    SEED=$seed recipes/abc/conversion.sh "$kind" "$system" "$method"
  done
done
"$BIN"/python recipes/seeds.py "$folder" --systems $systems --values $values $relative \
  --seeds $SEEDS --output "$WORK/conversion-$kind"
