#!/usr/bin/env bash
# Replays traces of protocol events against the model.
#
#   scripts/trace.sh FILE.jsonl…   says of each whether it is accepted; it fails unless all are
#   scripts/trace.sh samples       those of protocol/traces: accepted/ must be accepted, rejected/ must not
set -euo pipefail
shopt -s inherit_errexit

root=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "${CARGO_TARGET_DIR:-$root/target}/tlc"
"$root/scripts/tlc.sh" fetch >/dev/null

# Says of each trace `accepted FILE`, or `rejected FILE` and how far it was matched.
replay() {
    local directory module place events trace matched
    directory=$(mktemp -d "${CARGO_TARGET_DIR:-$root/target}/tlc/traces.XXXXXX")
    python3 "$root/scripts/trace.py" "$directory" "$@" >"$directory/traces"
    for module in "$directory"/*/; do
        cp "$root"/protocol/{Lazaret,TraceLazaret}.tla "$module"
        # A behaviour is looked for breadth first by one worker, so that it is seen how far each trace got.
        if ! TLC_DIRECTORY=$module TLC_WORKERS=1 "$root/scripts/tlc.sh" check TraceLazaret.tla \
            "$root/protocol/TraceLazaret.cfg" >"$module/log" 2>&1; then
            echo "trace.sh: TLC failed; see $module/log" >&2
            tail -n 20 "$module/log" >&2
            return 1
        fi
    done
    while read -r module place events trace; do
        matched=$(sed -nE "s/^<<\"matched\", $place, ([0-9]+)>>$/\1/p" "$directory/$module/log" | tail -n1)
        if [ "${matched:-0}" = "$events" ]; then
            echo "accepted $trace"
        else
            echo "rejected $trace after event ${matched:-0} of $events: $(grep . "$trace" | sed -n "$((${matched:-0} + 1))p")"
        fi
    done <"$directory/traces"
    rm -rf "$directory"
}

case ${1:-} in
    '') sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    samples)
        said=$(replay "$root"/protocol/traces/{accepted,rejected}/*.jsonl)
        echo "${said//$root\/protocol\/traces\//}"
        wrong=$(grep -vcE '^(accepted|rejected) [^ ]*/traces/\1/' <<<"$said" || true)
        ;;
    *)
        said=$(replay "$@")
        echo "$said"
        wrong=$(grep -vc '^accepted ' <<<"$said" || true)
        ;;
esac
[ "$wrong" = 0 ] || { echo "trace.sh: $wrong verdicts are not what they should be" >&2; exit 1; }
