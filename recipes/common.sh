# What every recipe sources first, from any folder; it goes to the repository's.
set -euo pipefail
script=$(realpath "$0")
cd -P "$(dirname "${BASH_SOURCE[0]}")/.."
script=${script#"$PWD/"}

# arguments SYNOPSIS "$@": a recipe that is called otherwise tells how; --help prints what heads it
arguments() {
  local synopsis=$1 brackets=${1//[^[]/} most
  shift
  case ${1:-} in -h|--help) sed -n '1d; /^#/!q; s/^# \{0,1\}//p' "$script"; exit ;; esac
  most=$(wc -w <<< "$synopsis")
  if [ $# -gt "$most" ] || [ $# -lt $((most - ${#brackets})) ]; then
    echo "usage: $script${synopsis:+ $synopsis}, but the number of arguments is $#; --help tells more" >&2
    exit 2
  fi
}

# programs: those that `make env` installs
programs() {
  if [ ! -x "$BIN/fairseq-train" ]; then
    echo "error: no fairseq-train in $BIN; run make env, or set BIN" >&2
    exit 2
  fi
}

# begun FOLDER: whether it has a training that is gone on with, or one that is done
begun() {
  [ -e "$1/checkpoint_last.pt" ] || compgen -G "$1/trained-*" > /dev/null
}

# one_budget FOLDER UPDATES: fairseq would go on with another budget's checkpoint in this folder, and
# the schedule of the learning rate, as well as what is compared, would be neither's
one_budget() {
  local file
  for file in "$1"/{started,trained}-*; do
    if [ -e "$file" ] && [ "${file##*-}" != "$2" ]; then
      if begun "$1"; then
        echo "error: $1 is a training of ${file##*-} updates, not of $2; keep to them, or set" \
          "another WORK" >&2
        exit 2
      fi
      rm "$file"
    fi
  done
  mkdir -p "$1"
  touch "$1/started-$2"
}

# finished SCORE FOLDER UPDATES [NAME...]: a run that has its score shows it and ends, without its corpus;
# one of other updates, or of other variables NAME, is refused
finished() {
  if ! begun "$2"; then return; fi
  one_budget "$2" "$3"
  if [ $# -gt 3 ]; then one_setting "$2" "${@:4}"; fi
  if [ -s "$1" ] && [ -e "$2/trained-$3" ]; then
    cat "$1"
    exit
  fi
}

# one_setting FOLDER NAME...: the same of other variables that a training is set by
one_setting() {
  local folder=$1 name now= before= others=
  if begun "$folder" && [ -e "$folder/settings" ]; then before=$(cat "$folder/settings"); fi
  for name in "${@:2}"; do
    now="$now${now:+ }$name=${!name}"
    if [[ " $before " != *" $name=${!name} "* ]]; then others="$others $name=${!name}"; fi
  done
  if [ -n "$before" ] && [ "$before" != "$now" ]; then
    echo "error: $folder is a training with $before, not with${others:- $now}; keep to them, or set" \
      "another WORK" >&2
    exit 2
  fi
  if begun "$folder"; then return; fi
  mkdir -p "$folder"
  echo "$now" > "$folder/settings"
}

# trained FOLDER UPDATES FLAGS...: fairseq-train, unless it is done
trained() {
  local folder=$1 updates=$2
  one_budget "$folder" "$updates"
  if [ -e "$folder/trained-$updates" ]; then return; fi
  "$BIN"/fairseq-train --max-update "$updates" --seed "$SEED" --num-workers 0 \
    --required-batch-size-multiple 1 --no-epoch-checkpoints --save-interval-updates 500 \
    --keep-interval-updates 1 --validate-interval-updates 500 --save-dir "$folder" \
    --log-format simple --log-interval 100 --log-file "$folder.log" "${@:3}"
  touch "$folder/trained-$updates"
}

# whole NAME VALUE [LEAST]: a mistake is told before the data are prepared; fairseq takes 0 updates for
# no limit
whole() {
  local least=${3:-0}
  if ! [[ $2 =~ ^(0|[1-9][0-9]*)$ ]] || [ "$2" -lt "$least" ]; then
    echo "error: $1 must be a whole number of $least or more, but is $2" >&2
    exit 2
  fi
}

# positive NAME VALUE: a number such as 1e-3, likewise
positive() {
  if ! [[ $2 =~ ^([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?$ && $2 =~ ^[^eE]*[1-9] ]]; then
    echo "error: $1 must be a number above 0, but is $2" >&2
    exit 2
  fi
}

# checked: ends a script that a table calls with ONLY_CHECK=yes before it runs the first system
checked() { if [ "${ONLY_CHECK:-}" = yes ]; then exit; fi; }

# warmup UPDATES: 200, or half of the updates where they are fewer than 400
warmup() { echo $(($1 < 400 ? $1 / 2 : 200)); }

controls="mlp gated linformer random clustering compressive global local_global window dilated strided
  workspace elu rfa t2r"

# check_control SYSTEM CONTROL
check_control() {
  if ! grep -qw -- "$2" <<< "$controls"; then
    echo "error: SYSTEM $1 has the control $2, which is none of" $controls >&2
    exit 2
  fi
}

# check_causal SYSTEM CONTROL: of a language model
check_causal() {
  if [ "$2" = workspace ]; then
    echo "error: SYSTEM $1: the control workspace has no causal form, and so no language model" >&2
    exit 2
  fi
}

# spread SYSTEM CONTROL SLOTS LENGTH: the flags by which global tokens are spread over LENGTH tokens
spread() {
  local positions=$3 queue=
  case $2 in
    global) ;;
    local_global)  # half of the slots are for the last tokens
      if [ "$3" -lt 2 ]; then
        echo "error: SYSTEM must have two slots or more for local_global, but is $1" >&2
        exit 2
      fi
      positions=$(($3 / 2)) queue="--abc-local-window $(($3 - $3 / 2))" ;;
    *) return ;;
  esac
  echo "--abc-stride $((($4 + positions - 1) / positions)) $queue"
}

# control_arch SYSTEM CONTROL MODEL: the architecture with a control of docs/controls.md, abc for ABC-MLP
control_arch() {
  if [ "$2" != abc ]; then check_control "$1" "$2"; fi
  if [ "$3" = transformer_lm ]; then check_causal "$1" "$2"; fi
  set -- "$2" "$3"
  case $1 in
    abc) echo "abc_mlp_$2" ;;
    elu|rfa|t2r) echo "$1_$2" ;;
    *) echo "abc_$1_$2" ;;
  esac
}
