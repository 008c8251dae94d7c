#!/usr/bin/env bash
# Builds the programs of VERSION for each system: binaries.sh linux/amd64… makes dist/bin/linux-amd64. Systems with few
# provisioners and operators get the agent alone: muster takes two minutes for each. Beside a program are the list of its
# components, PROGRAM.cdx.json, and their licenses, PROGRAM.licenses.txt. A commit gives the same bytes in each
# directory: they have no paths, no build identifiers and no libc.
set -euo pipefail
cd "$(dirname "$0")/../.."
export CGO_ENABLED=0 GOOS GOARCH

for system in "$@"; do
    GOOS=${system%/*} GOARCH=${system#*/} out=dist/bin/${system/\//-}
    commands=(./cmd/muster-server)
    case $system in linux/amd64 | linux/arm64 | darwin/arm64) commands+=(./cmd/muster) ;; esac
    rm -rf "$out"
    go build -trimpath -buildvcs=false -ldflags "-s -w -buildid= -X muster/internal/cli.buildVersion=$VERSION" \
        -o "$out/" "${commands[@]}"
    for command in "${commands[@]}"; do
        program=$out/${command##*/}
        deploy/release/licenses.sh "$command" >"$program.licenses.txt"
        bin/tools/cyclonedx-gomod bin -json -std -noserial -notimestamp -version "$VERSION" \
            -output "$program.cdx.json" "$program$(go env GOEXE)"
    done
done
