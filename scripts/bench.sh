#!/usr/bin/env bash
# Measures Lazaret against its peers and writes journal/bench/DATE.md.
#
#   scripts/bench.sh [--quick]
#
# Installs what is missing, but for two peers that are measured where they are on PATH: the npm package
# @anthropic-ai/sandbox-runtime (srt; it needs node, bubblewrap, socat and ripgrep) and the crate ai-jail.
# The measurements run as an unprivileged user, who is made when root runs this.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/deps.sh bench
mkdir -p journal/bench
day=$(date +%F)
report=journal/bench/$day.md
draft=$(mktemp journal/bench/.draft-XXXXXX)
trap 'rm -f "$draft"' EXIT
{
    echo "# Benchmark of $day"
    echo
    echo "Commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown)$(git diff --quiet HEAD 2>/dev/null || echo ', with changes')."
} >"$draft"
status=0
cargo bench --locked --bench compare -- "$@" >>"$draft" || status=$?
if [ "$(wc -l <"$draft")" -lt 5 ]; then
    echo "bench.sh: nothing was measured" >&2
    exit 1
fi
chmod 644 "$draft"
mv "$draft" "$report"
cat "$report"
echo
echo "written: $report"
exit $status
