# WikiText-2 in SentencePiece, which several recipes share, and source.

# wikitext2_pieces FOLDER VOCABULARY: $DATA/wikitext-2/{train,valid,test}.txt as data in FOLDER/bin, with
# the articles as documents; normalised as it was for the results in the READMEs
wikitext2_pieces() {
  local folder=$1
  if [ ! -d "$DATA/wikitext-2" ]; then
    echo "error: no folder $DATA/wikitext-2; set DATA" >&2
    exit 2
  fi
  programs
  local words=$folder/words/text
  "$BIN"/memattn prepare wikitext --corpus wikitext-2 --archive "$DATA/wikitext-2" \
    --output "$folder/words"
  "$BIN"/memattn prepare own-corpus --langs en --output "$folder" --vocab-size "$2" \
    --normalization nmt_nfkc \
    --text train="$words/train" valid="$words/valid" test="$words/test"
}
