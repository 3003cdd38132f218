#!/usr/bin/env bash
# Documents of 2,000 tokens: run.sh for every system and seed, a table, a picture, and the speed.
#
#   recipes/long_documents/table.sh      with the corpus in $DATA/multi30k-en-de
#
#   SYSTEMS  default "transformer gmat gmat-window-0-64"; the others are compared with the first
#   SEEDS    default "1 2 3"
#   REPEATS  translations of the test set that are timed, for each system of the first seed (default: 3)
#
# The other variables are in run.sh. A run that has its score is not repeated. The table is in
# $WORK/documents-SENTENCES.md, the picture in .png beside it, the speed in .speed.md. A run takes about
# 30 minutes on one core.
source "$(dirname "$0")/../common.sh"
arguments "" "$@"
WORK=${WORK:-outputs/long_documents}
source recipes/abc/translation.sh
SYSTEMS=${SYSTEMS:-transformer gmat gmat-window-0-64} SEEDS=${SEEDS:-1 2 3}
SENTENCES=${SENTENCES:-140} REPEATS=${REPEATS:-3}
for seed in $SEEDS; do whole SEEDS "$seed"; done
for name in SENTENCES REPEATS; do whole "$name" "${!name}" 1; done
for system in $SYSTEMS; do
  if ! [[ $system =~ ^(transformer|gmat(-([a-z0-9_]+)-[0-9]+-[0-9]+)?)$ ]]; then
    echo "error: SYSTEMS must be of run.sh, but has $system" >&2
    exit 2
  fi
  if [ -n "${BASH_REMATCH[3]}" ]; then check_control "$system" "${BASH_REMATCH[3]}"; fi
done
folder=$WORK/documents-$SENTENCES

for seed in $SEEDS; do for system in $SYSTEMS; do
  printf '\n== %s, seed %s\n' "$system" "$seed"
  DATA=$DATA WORK=$WORK SEED=$seed DEVICE=$DEVICE BIN=$BIN SENTENCES=$SENTENCES \
    recipes/long_documents/run.sh "$system"
done; done
"$BIN"/python recipes/seeds.py "$folder" --systems $SYSTEMS --values d-BLEU s-BLEU perplexity \
  --seeds $SEEDS --output "$folder"
runs=()
for system in $SYSTEMS; do runs+=("$system=$folder/$system-${SEEDS%% *}/checkpoint_last.pt"); done
"$BIN"/python recipes/long_documents/speed.py "$folder/bin" --runs "${runs[@]}" --repeats "$REPEATS" \
  --flags="$DEVICE" --output "$folder.speed.md"
