#!/usr/bin/env bash
# Texts of 64 tokens compressed to 16 vectors: wikitext2.sh with and without compression, and compress.sh,
# for every seed; a table and a picture.
#
#   recipes/gmat/compression_table.sh      with the corpus in $DATA/wikitext-2
#
#   SYSTEMS  of wikitext2.sh with texts of 64 tokens (default: "64x1-0-u2500 64x1-0 64x1-16-c1")
#   SEEDS    default "1 2 3"
#
# The other variables are in wikitext2.sh. 64x1-0-u2500 is trained as long as 64x1-16-c1, whose COPY is
# 2000 and UPDATES 500. A run that has its score is not repeated. The table is in $WORK/compression.md,
# the picture in $WORK/compression.png; the share of the tokens that the store gives back is in the files
# .recovered.txt.
source "$(dirname "$0")/../common.sh"
arguments "" "$@"
DATA=${DATA:-data} WORK=${WORK:-outputs/gmat} BIN=${BIN:-.venv/bin}
SYSTEMS=${SYSTEMS:-64x1-0-u2500 64x1-0 64x1-16-c1} SEEDS=${SEEDS:-1 2 3} folder=$WORK/wikitext-2
for seed in $SEEDS; do whole SEEDS "$seed"; done
for system in $SYSTEMS; do
  if ! [[ $system =~ ^64x1-(0(-u[1-9][0-9]*)?|[1-9][0-9]*-c[1-3])$ ]]; then
    echo "error: SYSTEMS must be 64x1-0, 64x1-0-uN or 64x1-M-cN with N from 1 to 3, but has $system" >&2
    exit 2
  fi
done

for seed in $SEEDS; do for system in $SYSTEMS; do
  printf '\n== %s, seed %s\n' "$system" "$seed"
  DATA=$DATA WORK=$WORK SEED=$seed BIN=$BIN recipes/gmat/wikitext2.sh "$system"
  if [[ $system == *-c* && ! -s $folder/$system-$seed.recovered.txt ]]; then
    WORK=$WORK SEED=$seed BIN=$BIN recipes/gmat/compress.sh "$system"
  fi
done; done
"$BIN"/python recipes/seeds.py "$folder" --systems $SYSTEMS --seeds $SEEDS --output "$WORK/compression" \
  --values "test perplexity" "test error" --relative
for seed in $SEEDS; do for system in $SYSTEMS; do
  if [[ $system == *-c* ]]; then echo "$system-$seed: $(tail -1 "$folder/$system-$seed.recovered.txt")"; fi
done; done
