# WikiText-2 in SentencePiece, which several recipes share, and source.

# wikitext2_pieces FOLDER VOCABULARY: $DATA/wikitext-2/{train,valid,test}.txt as data in FOLDER/bin
wikitext2_pieces() {
  local folder=$1 split
  if [ ! -d "$DATA/wikitext-2" ]; then
    echo "error: no folder $DATA/wikitext-2; set DATA" >&2
    exit 2
  fi
  programs
  mkdir -p "$folder/raw"
  for split in train valid test; do
    ln -sf "$(realpath "$DATA/wikitext-2/$split.txt")" "$folder/raw/$split.en"
  done
  "$BIN"/python data_prep/own_corpus.py --langs en --output "$folder" --vocab-size "$2" \
    --text train="$folder/raw/train" valid="$folder/raw/valid" test="$folder/raw/test"
}
