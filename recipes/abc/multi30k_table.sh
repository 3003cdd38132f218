#!/usr/bin/env bash
# Tables 3a and 7 of the paper on Multi30k: multi30k.sh for every system and seed, a table and a picture.
#
#   recipes/abc/multi30k_table.sh      with the corpus in $DATA/multi30k-en-de
#
#   SYSTEMS  default: the list below; the paper's figures are for twice as many slots. Kernel attention
#            with 32 features (elu, t2r, rfa) has the decoding state of 16 slots
#   SEEDS    default "1 2 3"
#
# The other variables are in the head of recipes/abc/translation.sh; UPDATES is 2000 unless set. A run
# that has its score is not repeated. The table is in $WORK/multi30k.md, the picture in
# $WORK/multi30k.png. A run takes five to nine minutes on one core.
source "$(dirname "$0")/../common.sh"
arguments "" "$@"
source recipes/abc/translation.sh
SYSTEMS=${SYSTEMS:-softmax abc-16-16 abc-16-4 linformer-16-16 random-16-16 clustering-16-16 \
  window-16-16 elu-32-32 t2r-32-32 rfa-32-32 abc-16-16-relu abc-16-16-sigmoid abc-16-16-separate abc-16-16-all}
SEEDS=${SEEDS:-1 2 3}
for system in $SYSTEMS; do choose_arch "$system"; done
for seed in $SEEDS; do whole SEEDS "$seed"; done

for seed in $SEEDS; do for system in $SYSTEMS; do
  printf '\n== %s, seed %s\n' "$system" "$seed"
  DATA=$DATA WORK=$WORK SEED=$seed UPDATES=${UPDATES:-2000} DEVICE=$DEVICE BIN=$BIN \
    recipes/abc/multi30k.sh "$system"
done; done

paper="softmax=27.2 abc-16-16=27.3 abc-16-4=27.1 linformer-16-16=26.6 random-16-16=25.7
  clustering-16-16=26.8 window-16-16=26.3 abc-16-16-relu=26.4 abc-16-16-sigmoid=27.0
  abc-16-16-all=27.0"
shown=
for figure in $paper; do case " $SYSTEMS " in *" ${figure%=*} "*) shown="$shown $figure" ;; esac; done
"$BIN"/python recipes/seeds.py "$WORK/multi30k" --systems $SYSTEMS --values BLEU perplexity chrF \
  --seeds $SEEDS --output "$WORK/multi30k" ${shown:+--paper $shown}
