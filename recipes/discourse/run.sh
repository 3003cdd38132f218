#!/usr/bin/env bash
# Does context decide? The generated corpus, with and without context: what `make discourse` runs.
# Everything goes to outputs/discourse; a step that is done is not done again, and training goes on
# where it stopped.
#
#   OUT      where to write (default: outputs/discourse)
#   UPDATES  of training (default: 8000)     SEED  default: 1
set -euo pipefail
cd "$(dirname "$0")/../.."
BIN=${BIN:-.venv/bin} OUT=${OUT:-outputs/discourse} UPDATES=${UPDATES:-8000} SEED=${SEED:-1}
step() { printf '\n== %s\n' "$*"; }

step "Corpus, SentencePiece, binary data"
"$BIN"/python data_prep/discourse.py --out "$OUT/corpus" --train-docs 8000 --valid-docs 50 \
  --test-docs 100 --contrast-groups 300 --seed 1
"$BIN"/python data_prep/own_corpus.py --langs en ru --output "$OUT/data" --vocab-size 1200 \
  --text train="$OUT/corpus/train" valid="$OUT/corpus/valid" test="$OUT/corpus/test"

for context in 0 3; do
  run=$OUT/context-$context-$SEED
  task="--task document_translation --source-context $context --target-context $context"
  generate="--gen-subset test --beam 5 --lenpen 0.6 --max-tokens 4096 --max-len-a 1.5 --max-len-b 20"

  step "Training with $context sentences of context"
  "$BIN"/fairseq-train "$OUT/data/bin" --user-dir fairseq_memattn --cpu $task \
    --arch abc_mlp_transformer --abc-cross-slots 64 --abc-causal-slots 32 \
    --encoder-layers 2 --decoder-layers 2 --encoder-embed-dim 128 --encoder-ffn-embed-dim 256 \
    --encoder-attention-heads 4 --decoder-attention-heads 4 --share-all-embeddings --dropout 0.0 \
    --optimizer adam --adam-betas '(0.9, 0.98)' --lr 4e-3 --lr-scheduler inverse_sqrt \
    --warmup-updates 300 --clip-norm 1.0 \
    --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
    --max-tokens 4096 --max-update "$UPDATES" --seed "$SEED" --num-workers 0 \
    --save-interval-updates 500 --keep-interval-updates 1 --validate-interval-updates 500 \
    --no-epoch-checkpoints --save-dir "$run" --log-interval 20 --log-file "$run.log"

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
      --docids "$OUT/corpus/test.docid" | tee "$run.$kind.score"
  done
done
