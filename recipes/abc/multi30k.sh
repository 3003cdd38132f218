#!/usr/bin/env bash
# Softmax attention against ABC-MLP on Multi30k English-German, with one budget and one seed.
#
#   recipes/abc/multi30k.sh SYSTEM      with the corpus in $DATA/multi30k-en-de
#
# SYSTEM and the variables are in the head of recipes/abc/translation.sh; UPDATES is 2000
# unless set.
source "$(dirname "$0")/../common.sh"
arguments "SYSTEM" "$@"
source recipes/abc/translation.sh
system=$1 UPDATES=${UPDATES:-2000}
raw=$DATA/multi30k-en-de data=$WORK/multi30k run=$WORK/multi30k/$system-$SEED

whole UPDATES "$UPDATES" 1
choose_arch "$system"
finished "$run.score" "$run" "$UPDATES"
prepare "$raw" en de train="$raw/train" valid="$raw/val" test="$raw/test_2016_flickr"
train --max-tokens 1024
translate
{
  perplexity
  "$BIN"/memattn score --generated "$run.generated" --reference "$raw/test_2016_flickr.de"
} | tee "$run.score.unfinished"
mv "$run.score.unfinished" "$run.score"
