#!/usr/bin/env bash
# What conversions to a bounded memory keep: conversion.sh for every system, method and seed, a table and
# a picture.
#
#   recipes/abc/conversion_table.sh      with the corpus in $DATA/multi30k-en-de
#
#   CONVERSIONS  SYSTEM:METHOD of conversion.sh (default: the list below)
#   SEEDS        default "1 2 3"
#   CONTINUED    updates after the conversion (default: 100, 5 % of 2000)
#
# The other variables are in translation.sh; UPDATES, of the softmax models, is 2000 unless set. A run that
# has its score is not repeated. The table is in $WORK/conversion.md, the picture in $WORK/conversion.png.
# Beside the trainings of the softmax models, of seven minutes each, all runs take 45 minutes on one
# core.
source "$(dirname "$0")/../common.sh"
arguments "" "$@"
source recipes/abc/translation.sh
CONVERSIONS=${CONVERSIONS:-softmax:plain clustering-32-32:plain clustering-16-16:plain \
  window-16-16:plain abc-64-64:transfer abc-32-32:transfer abc-32-32:plain abc-16-16:transfer \
  abc-16-16:plain}
SEEDS=${SEEDS:-1 2 3} CONTINUED=${CONTINUED:-100} UPDATES=${UPDATES:-2000}
for seed in $SEEDS; do whole SEEDS "$seed"; done
for conversion in $CONVERSIONS; do
  choose_arch "${conversion%:*}"
  if ! [[ $conversion =~ :(plain|transfer)$ ]]; then
    echo "error: CONVERSIONS must be SYSTEM:plain or SYSTEM:transfer, but has $conversion" >&2
    exit 2
  fi
done

systems=multi30k/softmax
for conversion in $CONVERSIONS; do
  system=${conversion%:*} method=${conversion#*:} lr=
  # Controls without weights leave the model near its minimum; a larger rate would train it away.
  case $system in softmax|clustering-*|window-*) lr=1e-4 ;; esac
  systems="$systems conversion/$system-$method-$CONTINUED"
  for seed in $SEEDS; do
    if [ -e "$WORK/conversion/$system-$method-$CONTINUED-$seed.score" ]; then continue; fi
    printf '\n== %s, %s, seed %s\n' "$system" "$method" "$seed"
    DATA=$DATA WORK=$WORK SEED=$seed UPDATES=$UPDATES DEVICE=$DEVICE BIN=$BIN CONTINUED=$CONTINUED \
      LR=$lr recipes/abc/conversion.sh "$system" "$method"
  done
done
"$BIN"/python recipes/seeds.py "$WORK" --systems $systems --values BLEU perplexity chrF \
  --output "$WORK/conversion"
