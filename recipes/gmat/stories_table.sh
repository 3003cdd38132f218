#!/usr/bin/env bash
# Questions about generated stories: stories.sh for every system and seed, a table and a picture.
#
#   recipes/gmat/stories_table.sh
#
#   SYSTEMS  of stories.sh (default: "31-0 31-8-2 8-8 8-0", of which the first has the whole input)
#   SEEDS    default "1 2 3"
#
# The other variables are in stories.sh. A run that has its score is not repeated. The table is in
# $WORK/stories/SENTENCES-sentences.md, the picture in the .png beside it.
source "$(dirname "$0")/../common.sh"
arguments "" "$@"
source recipes/gmat/spans_system.sh
SYSTEMS=${SYSTEMS:-31-0 31-8-2 8-8 8-0} SEEDS=${SEEDS:-1 2 3} SENTENCES=${SENTENCES:-4}
WORK=${WORK:-outputs/gmat} BIN=${BIN:-.venv/bin} table=$WORK/stories/$SENTENCES-sentences
for seed in $SEEDS; do whole SEEDS "$seed"; done
for system in $SYSTEMS; do check_spans_system "$system"; done
export SENTENCES WORK BIN

names=
for system in $SYSTEMS; do names="$names $SENTENCES-sentences-$system"; done
for seed in $SEEDS; do for system in $SYSTEMS; do
  printf '\n== %s, seed %s\n' "$system" "$seed"
  SEED=$seed recipes/gmat/stories.sh "$system"
done; done

# Table 7: BERT, (512 x 1, 64) with nine of twelve layers before, (8 x 64, 64) and (8 x 64, 0)
paper="31-0=81.1 31-8-2=79.6 8-8=75.6 8-0=9.8" shown=
for figure in $paper; do
  case " $SYSTEMS " in *" ${figure%=*} "*) shown="$shown $SENTENCES-sentences-$figure" ;; esac
done
"$BIN"/python recipes/seeds.py "$WORK/stories" --systems $names --values "exact match" \
  --seeds $SEEDS --output "$table" ${shown:+--paper $shown}
