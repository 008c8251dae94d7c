#!/usr/bin/env bash
# Makes OUT, an OCI layout of both programs, from BIN/linux-amd64 and BIN/linux-arm64. VERSION is the tag.
# CYCLONEDX_GOMOD_VERSION is the version of the tool that lists what is linked.
set -euo pipefail
cd "$(dirname "$0")/../.."
bin=$(realpath "${BIN:-dist/bin}") out=$(realpath -m "${OUT:-dist/image}")

GOBIN=$PWD/bin/tools go install "github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@$CYCLONEDX_GOMOD_VERSION"
for program in "$bin"/linux-{amd64,arm64}/{muster,muster-server}; do
    bin/tools/cyclonedx-gomod bin -json -std -noserial -notimestamp -version "$VERSION" -output "$program.cdx.json" \
        "$program"
done
go -C tools run ./image -out "$out" -version "$VERSION" -revision "$(git rev-parse HEAD)" \
    -time "${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}" "$bin"
