#!/usr/bin/env bash
# Writes the manual pages of both programs in bin/ to dist/man, and completions of shells to dist/completions.
set -euo pipefail
cd "$(dirname "$0")/../.."

rm -rf dist/man dist/completions
mkdir -p dist/man dist/completions
page() { "${@:2}" --help-man | gzip -9n >"dist/man/$1.1.gz"; }
page muster bin/muster
page muster-server bin/muster-server
for noun in $(bin/muster --completion-bash); do
    case $noun in
        help | server) ;; # muster-server has a page already
        *) page "muster-$noun" bin/muster "$noun" ;;
    esac
done
bin/muster completion bash >dist/completions/muster
bin/muster completion zsh >dist/completions/_muster
bin/muster completion fish >dist/completions/muster.fish
