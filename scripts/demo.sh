#!/usr/bin/env bash
# Index the example corpus, ask it a question, explain the answer.
# Usage: demo.sh FOLDER   (the one that holds the command sparta)
set -euo pipefail
unset CDPATH SPARTA_INDEX # the demo's index is in examples/, whatever else there is
bin=$(cd "${1:-.venv/bin}" && pwd)
cd "$(dirname "$0")/../examples"

run() {
  local word shown=sparta
  for word in "$@"; do
    case $word in *[!A-Za-z0-9._/=-]*) shown+=" \"$word\"" ;; *) shown+=" $word" ;; esac
  done
  echo
  echo "\$ $shown"
  "$bin/sparta" "$@"
}

echo "The examples folder holds wiki.jsonl: $(($(wc -l <wiki.jsonl))) short passages about many subjects."
echo "A transformer reads each of them once and writes down which words should find it:"
run index --corpus wiki.jsonl --overwrite
echo
echo "From here on no neural network is needed: a question is looked up and summed."
run search "who founded google" -k 3
echo
echo "A reader finds the answer in the best passages:"
run answer "who founded google"
echo
echo "Why is the first passage first? Each word's impact:"
run explain "who founded google" google
echo
echo "The index is in examples/sparta-index. Type next:"
echo "  source .venv/bin/activate && cd examples"
echo "  sparta answer \"which metal is liquid at room temperature\""
echo "  sparta terms google                          # the words this passage is found by"
echo "  sparta search \"who founded google\" --channel bm25"
echo "  sparta index --corpus YOUR.jsonl --index my-index && sparta search \"…\" --index my-index"
