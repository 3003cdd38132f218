#!/usr/bin/env bash
# T5Mem on the generated corpus, whose contrastive sets are decided by the context: with three
# sentences of context on either side, and the same weights without.
#
#   recipes/t5mem/discourse.sh VARIANT
#
#   VARIANT v1 | v2 | v3 | v4; t5 reads the context as one sequence with the sentence
#
#   DATA    folder of the corpus, made if it is missing (default: outputs/t5mem/discourse/corpus): to
#           train on with more names and nouns that come again than recipes/discourse/run.sh has
#   WORK    results (default: outputs/t5mem)          SEED     default 1
#   UPDATES of training (default: 10000)              BIN      programs (default: .venv/bin)
#   DEVICE  flags of fairseq-train, for example "--fp16" (default: --cpu)
#
# Paths are the repository's unless they begin with a slash. A run that stopped is gone on with; one
# of other UPDATES is refused, and needs another WORK.
source "$(dirname "$0")/../common.sh"
arguments "VARIANT" "$@"
source recipes/discourse/corpus.sh
source recipes/t5mem/variants.sh
variant=$1
DATA=${DATA:-outputs/t5mem/discourse/corpus} WORK=${WORK:-outputs/t5mem} SEED=${SEED:-1}
UPDATES=${UPDATES:-10000} DEVICE=${DEVICE---cpu} BIN=${BIN:-.venv/bin}
whole SEED "$SEED"
whole UPDATES "$UPDATES" 1
run=$WORK/discourse/$variant-$SEED bin=$DATA/data/bin

choose_variant "$variant"
set_sizes 128 256
if [ "$variant" != t5 ]; then arch="$arch --t5mem-selector-query layer"; fi
schedule="--optimizer adam --lr 1e-3 --lr-scheduler polynomial_decay --total-num-update $UPDATES
  --warmup-updates 400 --clip-norm 1.0 --dropout 0.0 --max-tokens 1024"

text="--name-weight 4 --noun-weight 5" pieces="--vocab-size 3000 --model-type bpe" \
  discourse_corpus "$DATA"
one_budget "$run" "$UPDATES"
if [ ! -e "$run/trained-$UPDATES" ]; then  # fairseq would train for one update more
  "$BIN"/fairseq-train "$bin" --user-dir fairseq_memattn $arch $sizes $schedule $DEVICE \
    --task document_translation --source-context 3 --target-context 3 --adam-betas '(0.9, 0.98)' \
    --criterion cross_entropy --max-update "$UPDATES" --seed "$SEED" --num-workers 0 \
    --required-batch-size-multiple 1 --no-epoch-checkpoints --save-interval-updates 500 \
    --keep-interval-updates 1 --validate-interval-updates 500 --save-dir "$run" \
    --log-format simple --log-interval 100 --log-file "$run.log"
  touch "$run/trained-$UPDATES"
fi

case $DEVICE in *--cpu*) where=--cpu ;; *) where= ;; esac
for context in 3 0; do
  printf '\n== %s, %s sentences of context\n' "$variant" "$context"
  "$BIN"/memattn contrast "$bin" --path "$run/checkpoint_last.pt" $where \
    --source-context "$context" --target-context "$context" --sets "$DATA"/corpus/contrast/*.json \
    --sentencepiece-model "$DATA/data/spm.model" --json "$run.contrast-$context.json" |
    tee "$run.contrast-$context.txt"
done
