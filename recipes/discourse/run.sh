#!/usr/bin/env bash
# Does context decide? The generated corpus, with and without context: what `make discourse` runs.
# Everything goes to outputs/discourse; a step that is done is not done again, and training goes on
# where it stopped.
#
#   OUT       where to write (default: outputs/discourse)     SEED  default: 1
#   UPDATES   of training with 3 sentences of context (default: 16000). Batches are of 2048 tokens: by
#             sentence, a quarter of the updates sees as many sentences.
#   CONTEXTS  sentences of context, one system for each (default: "0 3")
#
# A run of other UPDATES is refused, and needs another OUT.
source "$(dirname "$0")/../common.sh"
arguments "" "$@"
source recipes/discourse/corpus.sh
BIN=${BIN:-.venv/bin} OUT=${OUT:-outputs/discourse} UPDATES=${UPDATES:-16000} SEED=${SEED:-1}
CONTEXTS=${CONTEXTS:-0 3}
whole UPDATES "$UPDATES" 4
whole SEED "$SEED"
for context in $CONTEXTS; do whole CONTEXTS "$context"; done
step() { printf '\n== %s\n' "$*"; }

step "Corpus, SentencePiece, binary data"
text="" pieces="--vocab-size 2500" discourse_corpus "$OUT"

for context in $CONTEXTS; do
  run=$OUT/context-$context-$SEED updates=$((UPDATES * (context + 1) / 4))
  task="--task document_translation --source-context $context --target-context $context"
  generate="--gen-subset test --beam 5 --lenpen 0.6 --max-tokens 4096 --max-len-a 1.5 --max-len-b 20"

  step "Training with $context sentences of context"
  one_budget "$run" "$updates"
  if [ ! -e "$run/trained-$updates" ]; then  # fairseq would train for one update more
    "$BIN"/fairseq-train "$OUT/data/bin" --user-dir fairseq_memattn --cpu $task \
      --arch abc_mlp_transformer --abc-cross-slots 64 --abc-causal-slots 32 \
      --encoder-layers 2 --decoder-layers 2 --encoder-embed-dim 128 --encoder-ffn-embed-dim 256 \
      --encoder-attention-heads 4 --decoder-attention-heads 4 --share-all-embeddings --dropout 0.0 \
      --encoder-normalize-before --decoder-normalize-before \
      --optimizer adam --adam-betas '(0.9, 0.98)' --clip-norm 1.0 --lr 3e-3 \
      --lr-scheduler polynomial_decay --total-num-update "$updates" --warmup-updates 400 \
      --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
      --max-tokens 2048 --max-update "$updates" --seed "$SEED" --num-workers 0 \
      --save-interval-updates 500 --keep-interval-updates 1 --validate-interval-updates 500 \
      --no-epoch-checkpoints --save-dir "$run" --log-interval 20 --log-file "$run.log"
    touch "$run/trained-$updates"
  fi

  step "Contrastive sets, $context sentences of context"
  "$BIN"/memattn contrast "$OUT/data/bin" --path "$run/checkpoint_last.pt" --cpu \
    --sets "$OUT"/corpus/contrast/*.json --sentencepiece-model "$OUT/data/spm.model" \
    --json "$run.contrast.json" | tee "$run.contrast.txt"

  step "Translating the test set, $context sentences of context"
  kinds=predicted
  if [ "$context" -gt 0 ]; then kinds="predicted gold"; fi
  for kind in $kinds; do
    flags=""
    if [ "$kind" = gold ]; then flags=--gold-target-context; fi
    "$BIN"/fairseq-generate "$OUT/data/bin" --user-dir fairseq_memattn --cpu $task $generate \
      $flags --path "$run/checkpoint_last.pt" > "$run.$kind.txt"
    echo "$kind target context"
    "$BIN"/memattn score --generated "$run.$kind.txt" --reference "$OUT/corpus/test.ru" \
      --docids "$OUT/corpus/test.docid" --resamples 1000 | tee "$run.$kind.score.unfinished"
    mv "$run.$kind.score.unfinished" "$run.$kind.score"
  done

  if [ "$context" -gt 0 ]; then
    step "What the context adds, $context sentences of context"
    "$BIN"/memattn cxmi "$OUT/data/bin" --path "$run/checkpoint_last.pt" --cpu --subset test \
      --json "$run.cxmi.json" --picture "$run.context.png" | tee "$run.cxmi.txt"
  fi
done
