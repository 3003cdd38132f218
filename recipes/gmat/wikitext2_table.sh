#!/usr/bin/env bash
# Table 5 of the paper with a small model: wikitext2.sh for every system and seed, a table and a picture.
#
#   recipes/gmat/wikitext2_table.sh      with the corpus in $DATA/wikitext-2
#
#   SYSTEMS  of wikitext2.sh (default: "64x8-0 64x8-32 512x1-0 8x64-0 8x64-64")
#   SEEDS    default "1 2 3"
#
# The other variables are in wikitext2.sh. A run that has its score is not repeated. The paper's figures are
# perplexities of Wikipedia, of BERT-base; it has no 64x8-0, 64x8-32 or 512x1-0, but (512 x 4, 0), (512 x 4, 64)
# and (1024 x 2, 0), with 3.953, 3.956 and 3.87. The table is in $WORK/masked_words.md, the picture in
# $WORK/masked_words.png.
source "$(dirname "$0")/../common.sh"
arguments "" "$@"
DATA=${DATA:-data} WORK=${WORK:-outputs/gmat} BIN=${BIN:-.venv/bin}
SYSTEMS=${SYSTEMS:-64x8-0 64x8-32 512x1-0 8x64-0 8x64-64} SEEDS=${SEEDS:-1 2 3}
for seed in $SEEDS; do whole SEEDS "$seed"; done
for system in $SYSTEMS; do
  if ! [[ $system =~ ^[1-9][0-9]*x[1-9][0-9]*-[0-9]+$ ]]; then
    echo "error: SYSTEMS must be CHUNKxCOUNT-M of wikitext2.sh, but has $system" >&2
    exit 2
  fi
done
export DATA WORK BIN

for seed in $SEEDS; do for system in $SYSTEMS; do
  printf '\n== %s, seed %s\n' "$system" "$seed"
  SEED=$seed recipes/gmat/wikitext2.sh "$system"
done; done

shown=
for figure in 8x64-0=20.68 8x64-64=4.94; do
  case " $SYSTEMS " in *" ${figure%=*} "*) shown="$shown $figure" ;; esac
done
"$BIN"/python recipes/seeds.py "$WORK/wikitext-2" --systems $SYSTEMS --seeds $SEEDS \
  --values "test perplexity" "test error" --output "$WORK/masked_words" ${shown:+--paper $shown}
