#!/usr/bin/env bash
# Prints "URI KEYRING" of the machine's first apt source that serves plain Debian bookworm packages;
# KEYRING is empty when the source names none. Fails when there is no such source.
#
# Whoever adds a suite or makes a root file system uses the mirror that the machine uses already.
set -euo pipefail
shopt -s nullglob

files=(/etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list /etc/apt/sources.list)
readable=()
for file in "${files[@]}"; do [ -r "$file" ] && readable+=("$file"); done
[ ${#readable[@]} -gt 0 ] || exit 1

awk '
    function emit() { if (binary && uri != "" && suite) { print uri, key; found = 1; exit } }
    function reset() { emit(); binary = suite = 0; uri = key = "" }
    FNR == 1 { reset() }
    FILENAME ~ /\.sources$/ {
        if ($0 ~ /^[[:space:]]*$/) reset()
        if ($1 == "Types:" && $0 ~ / deb( |$)/) binary = 1
        if ($1 == "URIs:") uri = $2
        if ($1 == "Signed-By:") key = $2
        if ($1 == "Suites:") for (i = 2; i <= NF; i++) if ($i == "bookworm") suite = 1
        next
    }
    $1 == "deb" {
        key = ""; at = 2
        if ($2 ~ /^\[/) {
            for (; at <= NF; at++) {
                option = $at; gsub(/[][]/, "", option)
                if (option ~ /^signed-by=/) { sub(/^signed-by=/, "", option); key = option }
                if ($at ~ /\]$/) { at++; break }
            }
        }
        if ($(at + 1) == "bookworm") { print $at, key; found = 1; exit }
    }
    END { if (!found) emit(); exit !found }
' "${readable[@]}"
