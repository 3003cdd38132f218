#!/usr/bin/env bash
# From nothing to a scored translation: what `make demo` runs. Everything goes to demo/; a step
# that is done is not done again, and training goes on where it stopped.
source "$(dirname "$0")/../common.sh"
arguments "" "$@"
BIN=${BIN:-.venv/bin}
OUT=${OUT:-demo}
step() { printf '\n== %s\n' "$*"; }

if [ -e "$OUT/done" ]; then
  echo "The demo has already run; its results are in $OUT (remove the folder to run it again)."
  cat "$OUT/score.txt"
  echo "Picture: $OUT/memory.png"
  exit 0
fi

programs
step "1/7  A corpus where context decides: English-Russian documents"
"$BIN"/python data_prep/discourse.py --out "$OUT/corpus" --train-docs 4000 --valid-docs 50 \
  --test-docs 50 --seed 1

step "2/7  Windows of four sentences, stride one"
for split in train valid test; do
  [ -e "$OUT/windows/$split.ru" ] || "$BIN"/python data_prep/windows.py make \
    --input "$OUT/corpus/$split" --langs en ru --output "$OUT/windows/$split" --force
done

step "3/7  SentencePiece"
[ -e "$OUT/spm.model" ] || "$BIN"/python data_prep/subword.py train \
  --input "$OUT/corpus/train.en" "$OUT/corpus/train.ru" --model "$OUT/spm" --vocab-size 1200
[ -e "$OUT/pieces/test.ru" ] || "$BIN"/python data_prep/subword.py encode \
  --model "$OUT/spm.model" --input "$OUT"/windows/*.en "$OUT"/windows/*.ru --output "$OUT/pieces"

step "4/7  fairseq-preprocess"
if [ ! -e "$OUT/bin/ready" ]; then
  rm -rf "$OUT/bin"  # what an interrupted run may have left
  "$BIN"/fairseq-preprocess --source-lang en --target-lang ru --joined-dictionary \
    --trainpref "$OUT/pieces/train" --validpref "$OUT/pieces/valid" --testpref "$OUT/pieces/test" \
    --destdir "$OUT/bin"
  touch "$OUT/bin/ready"
fi

step "5/7  fairseq-train --arch abc_mlp_transformer (32 slots for the source, 8 for the target)"
"$BIN"/fairseq-train "$OUT/bin" --user-dir fairseq_memattn --arch abc_mlp_transformer --cpu \
  --abc-cross-slots 32 --abc-causal-slots 8 \
  --encoder-layers 2 --decoder-layers 2 --encoder-embed-dim 128 --encoder-ffn-embed-dim 256 \
  --encoder-attention-heads 4 --decoder-attention-heads 4 --share-all-embeddings --dropout 0.0 \
  --optimizer adam --adam-betas '(0.9, 0.98)' --lr 4e-3 --lr-scheduler inverse_sqrt \
  --warmup-updates 200 --clip-norm 1.0 \
  --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
  --max-tokens 2048 --max-update "${UPDATES:-1000}" --seed 1 --num-workers 0 \
  --required-batch-size-multiple 1 --save-interval-updates 100 --keep-interval-updates 2 \
  --validate-interval-updates 500 --no-epoch-checkpoints \
  --save-dir "$OUT/model" --log-interval 20 --log-file "$OUT/train.log"

step "6/7  fairseq-generate, beam 5"
"$BIN"/fairseq-generate "$OUT/bin" --user-dir fairseq_memattn --cpu --gen-subset test \
  --path "$OUT/model/checkpoint_last.pt" --beam 5 --lenpen 0.6 --max-tokens 4096 \
  --required-batch-size-multiple 1 > "$OUT/generated.txt"

step "7/7  sacreBLEU of each window's last sentence, and a picture of the memory"
"$BIN"/memattn score --generated "$OUT/generated.txt" --reference "$OUT/windows/test.ru" \
  --separator _eos --output "$OUT/translation.ru" > "$OUT/score.part"
mv "$OUT/score.part" "$OUT/score.txt"
cat "$OUT/score.txt"
"$BIN"/memattn plot "$OUT/bin" --path "$OUT/model/checkpoint_last.pt" --index 3 --head 0 \
  --output "$OUT/memory.png"
touch "$OUT/done"
