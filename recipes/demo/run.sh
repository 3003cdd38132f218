#!/usr/bin/env bash
# Trains, decodes and scores a document translation model on a generated corpus, and shows what its
# context is worth: what `make demo` runs. All output is in demo/. A run that was interrupted continues where it stopped.
source "$(dirname "$0")/../common.sh"
arguments "" "$@"
BIN=${BIN:-.venv/bin}
OUT=${OUT:-demo}
UPDATES=${UPDATES:-1500}
whole UPDATES "$UPDATES" 1
step() { printf '\n== %s\n' "$*"; }

if [ -e "$OUT/done" ]; then
  echo "The demo has already run; its results are in $OUT (remove the folder to run it again)."
  cat "$OUT/score.txt" "$OUT/context.txt"
  echo "Picture: $OUT/memory.png"
  exit 0
fi

programs
step "1/6  A corpus where the sentence before decides: English-Russian documents"
"$BIN"/memattn prepare discourse --output "$OUT/corpus" --train-docs 4000 --valid-docs 50 \
  --test-docs 50 --distances 1 --seed 1

step "2/6  SentencePiece and fairseq-preprocess, with document ids"
"$BIN"/memattn prepare own-corpus --langs en ru --output "$OUT/data" --vocab-size 1200 \
  --text train="$OUT/corpus/train" valid="$OUT/corpus/valid" test="$OUT/corpus/test"

documents="--task document_translation --source-context 1 --target-context 1"

step "3/6  fairseq-train --task document_translation --arch abc_mlp_transformer"
one_budget "$OUT/model" "$UPDATES"
if [ ! -e "$OUT/model/trained-$UPDATES" ]; then
  "$BIN"/fairseq-train "$OUT/data/bin" --user-dir fairseq_memattn --cpu $documents \
    --arch abc_mlp_transformer --abc-cross-slots 32 --abc-causal-slots 8 \
    --encoder-layers 2 --decoder-layers 2 --encoder-embed-dim 128 --encoder-ffn-embed-dim 256 \
    --encoder-attention-heads 4 --decoder-attention-heads 4 --share-all-embeddings --dropout 0.0 \
    --encoder-normalize-before --decoder-normalize-before \
    --optimizer adam --adam-betas '(0.9, 0.98)' --lr 3e-3 --clip-norm 1.0 \
    --lr-scheduler polynomial_decay --total-num-update "$UPDATES" --warmup-updates 200 \
    --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
    --max-tokens 1024 --max-update "$UPDATES" --seed 1 --num-workers 0 \
    --required-batch-size-multiple 1 --save-interval-updates 250 --keep-interval-updates 2 \
    --validate-interval-updates 250 --no-epoch-checkpoints \
    --save-dir "$OUT/model" --log-interval 20 --log-file "$OUT/train.log"
  touch "$OUT/model/trained-$UPDATES"
fi

step "4/6  fairseq-generate, beam 5: a document's own translations are its target context"
"$BIN"/fairseq-generate "$OUT/data/bin" --user-dir fairseq_memattn --cpu $documents \
  --gen-subset test --path "$OUT/model/checkpoint_last.pt" --beam 5 --lenpen 0.6 \
  --max-len-a 1.5 --max-len-b 20 --max-tokens 4096 > "$OUT/generated.txt"

step "5/6  sacreBLEU of sentences and documents, and a picture of the memory"
"$BIN"/memattn score --generated "$OUT/generated.txt" --reference "$OUT/corpus/test.ru" \
  --docids "$OUT/corpus/test.docid" --output "$OUT/translation.ru" > "$OUT/score.part"
mv "$OUT/score.part" "$OUT/score.txt"
cat "$OUT/score.txt"
"$BIN"/memattn plot "$OUT/data/bin" --path "$OUT/model/checkpoint_last.pt" --index 3 --head 0 \
  --output "$OUT/memory.png"

step "6/6  What context is worth: how often the correct of two translations is the more likely one"
for context in 1 0; do
  "$BIN"/memattn contrast "$OUT/data/bin" --path "$OUT/model/checkpoint_last.pt" --cpu \
    --sets "$OUT"/corpus/contrast/*.json --sentencepiece-model "$OUT/data/spm.model" \
    --source-context "$context" --target-context "$context" > "$OUT/contrast-$context.txt"
done
for row in cohesion deixis ellipsis pronoun total; do
  awk -v row="$row" '$1 == row {found[FILENAME] = $(NF - 3)}
    END {printf "%-9s with the sentence before %5.1f %%, without %5.1f %%\n", row, found[ARGV[1]], found[ARGV[2]]}' \
    "$OUT/contrast-1.txt" "$OUT/contrast-0.txt"
done > "$OUT/context.part"
mv "$OUT/context.part" "$OUT/context.txt"
cat "$OUT/context.txt"
touch "$OUT/done"
