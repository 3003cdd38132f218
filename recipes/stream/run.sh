#!/usr/bin/env bash
# How far does a memory reach that is carried from sentence to sentence? The generated corpus with
# cues 1 to 30 sentences before their use, and the accuracy at each distance.
# Everything goes to outputs/stream; a step that is done is not done again, and training goes on
# where it stopped.
#
#   OUT      where to write (default: outputs/stream)     SEED  default: 1
#   UPDATES  of training, in batches of 4096 tokens (default: 5000)
#   SYSTEMS  default: "windows decay"
#              windows                 three sentences of context on either side
#              none, decay, sentence   --stream with this --abc-document-gate
#
# A run of other UPDATES is refused, and needs another OUT.
source "$(dirname "$0")/../common.sh"
arguments "" "$@"
BIN=${BIN:-.venv/bin} OUT=${OUT:-outputs/stream} UPDATES=${UPDATES:-5000} SEED=${SEED:-1}
SYSTEMS=${SYSTEMS:-windows decay}
whole UPDATES "$UPDATES" 1
whole SEED "$SEED"
step() { printf '\n== %s\n' "$*"; }
for system in $SYSTEMS; do
  case $system in windows|none|decay|sentence) ;; *)
    echo "error: SYSTEMS must be windows, none, decay or sentence, but has $system" >&2
    exit 2 ;;
  esac
done
programs

step "Corpus, SentencePiece, binary data"
"$BIN"/memattn prepare discourse --output "$OUT/corpus" --train-docs 3000 --valid-docs 30 \
  --test-docs 100 --contrast-groups 350 --distances 1 2 3 5 10 20 30 --min-sentences 31 \
  --max-sentences 40 --seed 1
"$BIN"/memattn prepare own-corpus --langs en ru --output "$OUT/data" --vocab-size 2000 \
  --text train="$OUT/corpus/train" valid="$OUT/corpus/valid" test="$OUT/corpus/test"

found=()
for system in $SYSTEMS; do
  run=$OUT/$system-$SEED task="--task document_translation"
  if [ "$system" = windows ]; then
    task="$task --source-context 3 --target-context 3"
  else
    task="$task --stream --source-context 0 --target-context 0 --stream-sentences 40"
    task="$task --abc-document-gate $system"
  fi

  step "Training: $system"
  one_budget "$run" "$UPDATES"
  if [ ! -e "$run/trained-$UPDATES" ]; then  # fairseq would train for one update more
    "$BIN"/fairseq-train "$OUT/data/bin" --user-dir fairseq_memattn --cpu $task \
      --arch abc_mlp_transformer --abc-cross-slots 32 --abc-causal-slots 32 \
      --encoder-layers 1 --decoder-layers 2 --encoder-embed-dim 64 --encoder-ffn-embed-dim 256 \
      --encoder-attention-heads 4 --decoder-attention-heads 4 --share-all-embeddings --dropout 0.0 \
      --encoder-normalize-before --decoder-normalize-before \
      --optimizer adam --adam-betas '(0.9, 0.98)' --clip-norm 1.0 --lr 3e-3 \
      --lr-scheduler polynomial_decay --total-num-update "$UPDATES" --warmup-updates 400 \
      --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
      --max-tokens 4096 --max-update "$UPDATES" --seed "$SEED" --num-workers 0 \
      --save-interval-updates 1000 --keep-interval-updates 1 --validate-interval-updates 1000 \
      --no-epoch-checkpoints --save-dir "$run" --log-interval 50 --log-file "$run.log"
    touch "$run/trained-$UPDATES"
  fi

  step "Contrastive sets: $system"
  "$BIN"/memattn contrast "$OUT/data/bin" --path "$run/checkpoint_last.pt" --cpu \
    --sets "$OUT"/corpus/contrast/*.json --sentencepiece-model "$OUT/data/spm.model" \
    --json "$run.contrast.json" | tee "$run.contrast.txt"

  step "Translating the test set: $system"
  "$BIN"/fairseq-generate "$OUT/data/bin" --user-dir fairseq_memattn --cpu ${task%--abc-doc*} \
    --gen-subset test --beam 5 --lenpen 0.6 --max-tokens 4096 --max-len-a 1.5 --max-len-b 20 \
    --path "$run/checkpoint_last.pt" > "$run.generated.txt"
  "$BIN"/memattn score --generated "$run.generated.txt" --reference "$OUT/corpus/test.ru" \
    --docids "$OUT/corpus/test.docid" --resamples 1000 | tee "$run.score.unfinished"
  mv "$run.score.unfinished" "$run.score"
  found+=("$system=$run.contrast.json")
done

step "Accuracy by distance"
"$BIN"/python recipes/stream/distances.py "${found[@]}" --output "$OUT/distances"
