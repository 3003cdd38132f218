# The generated corpus, which run.sh and T5Mem's discourse.sh share, and source.

# discourse_corpus FOLDER: its text in FOLDER/corpus by $text (flags of discourse.py), SentencePiece by
# $pieces (of own_corpus.py) and binary data in FOLDER/data
discourse_corpus() {
  programs
  "$BIN"/memattn prepare discourse --output "$1/corpus" --train-docs 8000 --valid-docs 50 \
    --test-docs 200 --contrast-groups 300 --seed 1 $text
  "$BIN"/memattn prepare own-corpus --langs en ru --output "$1/data" $pieces \
    --text train="$1/corpus/train" valid="$1/corpus/valid" test="$1/corpus/test"
}
