#!/usr/bin/env bash
# Prints the licenses of all that a command is built of: licenses.sh ./cmd/muster. GOOS and GOARCH name the system that it
# is built for. A module without a license file is an error.
set -euo pipefail
shopt -s nocaseglob nullglob

text() { printf '\n=== %s\n\n' "$2" && cat "$1"; }
check() { [[ $found ]] || { echo "licenses.sh: $last has no license file: look for its terms" >&2 && exit 1; }; }

echo "${1##*/} is built of the following works. Each name is followed by the terms of the work."
text LICENSE 'muster: LICENSE'
text "$(go env GOROOT)/LICENSE" "$(go env GOVERSION): LICENSE"

# Terms are in the directories of linked packages and above them, up to the root of their module.
last='' found=yes
CGO_ENABLED=0 go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}} {{$.Dir}}{{end}}{{end}}' "$1" |
    while read -r path version root dir; do
        while [[ $dir == "$root"* ]]; do
            echo "$path $version $root $dir"
            dir=$(dirname "$dir")
        done
    done | LC_ALL=C sort -u | {
    while read -r path version root dir; do
        if [[ $path != "$last" ]]; then
            check
            last=$path found=''
        fi
        for file in "$dir"/{licen[cs]e,copying,notice,copyright,unlicense}*; do
            [[ -f $file && $file != *.go ]] || continue
            text "$file" "$path $version: ${file#"$root"/}"
            found=yes
        done
    done
    check
}
