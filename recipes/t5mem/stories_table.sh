#!/usr/bin/env bash
# Questions about generated stories: stories.sh for every system and seed, a table and a picture.
#
#   recipes/t5mem/stories_table.sh
#
#   SYSTEMS  of stories.sh (default: t5-1 v1-4 v2-4 v3-4 v4-4 v4-2 v4-1 ws-4 ws_wma-4)
#   SEEDS    default "1 2 3"
#   FROM     path of the models to begin with, in which the words SYSTEM and SEED are replaced (default: none)
#
# The other variables are in stories.sh; all systems have the same, but for LENGTH's default. A run that
# has its score is not repeated. The table is in STORIES.md and the picture in STORIES.png, where STORIES is
# the folder of the stories in $WORK/stories; questions of several numbers of facts have a column for each
# number. What the selector of a system selects is in STORIES/SYSTEM-SEED.selected.
source "$(dirname "$0")/../common.sh"
arguments "" "$@"
SYSTEMS=${SYSTEMS:-t5-1 v1-4 v2-4 v3-4 v4-4 v4-2 v4-1 ws-4 ws_wma-4} SEEDS=${SEEDS:-1 2 3} FROM=${FROM:-}
FACTS=${FACTS:-1} SENTENCES=${SENTENCES:-6} WORK=${WORK:-outputs/t5mem} BIN=${BIN:-.venv/bin}
source recipes/t5mem/variants.sh
for seed in $SEEDS; do whole SEEDS "$seed"; done
check_facts
for name in SYSTEM SEED; do
  values=${name}S
  if [ -n "$FROM" ] && [ "$(wc -w <<< "${!values}")" -gt 1 ] && [[ $FROM != *$name* ]]; then
    echo "error: FROM must have the word $name, for which each of $values is put, but is $FROM" >&2
    exit 2
  fi
done
stories=$WORK/stories/$SENTENCES-sentences-facts-${FACTS// /-}
export FACTS SENTENCES WORK BIN

# model SYSTEM SEED: the one to begin with
model() {
  local path=${FROM//SYSTEM/$1}
  echo "${path//SEED/$2}"
}

for seed in $SEEDS; do for system in $SYSTEMS; do
  FROM=$(model "$system" "$seed") SEED=$seed ONLY_CHECK=yes recipes/t5mem/stories.sh "$system"
done; done
for seed in $SEEDS; do for system in $SYSTEMS; do
  printf '\n== %s, seed %s\n' "$system" "$seed"
  FROM=$(model "$system" "$seed") SEED=$seed recipes/t5mem/stories.sh "$system"
done; done

for seed in $SEEDS; do for system in $SYSTEMS; do
  if ! [[ $system =~ ^v[1-4]-[2-8]$ ]]; then continue; fi
  "$BIN"/python recipes/t5mem/selected_chunks.py "$stories" \
    --path "$stories/$system-$seed/checkpoint_last.pt" > "$stories/$system-$seed.selected"
done; done

# Table 5 of the paper of 2022, AdamW: exact match on HotpotQA with pretrained models
paper= shown=
if [ "$FACTS" = 1 ]; then paper="t5-1=16.8 ws-4=8.1 ws_wma-4=7.0 v4-4=4.1"; fi
for figure in $paper; do
  case " $SYSTEMS " in *" ${figure%=*} "*) shown="$shown $figure" ;; esac
done
names=("" "one fact" "two facts" "three facts") values=("exact match")
if [[ $FACTS == *\ * ]]; then for number in $FACTS; do values+=("${names[number]}"); done; fi
"$BIN"/python recipes/seeds.py "$stories" --systems $SYSTEMS --values "${values[@]}" --seeds $SEEDS \
  --output "$stories" ${shown:+--paper $shown}
