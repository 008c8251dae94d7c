#!/usr/bin/env bash
# Makes dist/release/VERSION of a clean commit: release.sh VERSION [KEY]. KEY is a private key in PEM, P-256 or RSA, which
# signs the checksums. SYSTEMS limits the systems. `make release` sets the versions of tools. A commit gives the same bytes
# in each directory; only the signature differs.
set -euo pipefail
cd "$(dirname "$0")/../.."

fail() { echo "release: $2" >&2 && exit "$1"; }

version=${1-} key=${2-}
systems=${SYSTEMS-linux/amd64 linux/arm64 linux/riscv64 darwin/amd64 darwin/arm64 freebsd/amd64 windows/amd64}
[[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?$ ]] || fail 2 "version is \"$version\", want one such as v0.1.0"
[[ -z $key ]] || openssl dgst -sha256 -sign "$key" </dev/null >/dev/null ||
    fail 1 "key $key does not sign: want an unencrypted or encrypted private key in PEM, P-256 or RSA"
[[ -z $(git status --porcelain) ]] || fail 1 "the tree differs from its commit: commit or remove what git status shows"
notes=$(awk -v "number=${version#v}" '/^## /{on = ($2 == "[" number "]" || $3 == number); next} on' CHANGELOG.md)
[[ $notes ]] || fail 1 "CHANGELOG.md has no section for ${version#v}: add one, with ## [${version#v}] as its heading"

unset GOEXPERIMENT
GOTOOLCHAIN=$(awk '$1 == "toolchain" {print $2}' go.mod)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export GOTOOLCHAIN SOURCE_DATE_EPOCH CGO_ENABLED=0 GOFLAGS='-trimpath -buildvcs=false' GOAMD64=v1 LC_ALL=C TZ=UTC
out=dist/release/$version
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
new=$work/release
mkdir "$new"

# Vulnerabilities in what is linked. The database is a service of the Go project.
vulnerabilities() {
    if ! curl -fsS -m 20 -o /dev/null https://vuln.go.dev/index/db.json 2>/dev/null; then
        echo "release: https://vuln.go.dev is not reachable: vulnerabilities are not checked" >&2
    elif ! go run "golang.org/x/vuln/cmd/govulncheck@$GOVULNCHECK_VERSION" ./cmd/...; then
        fail 1 "govulncheck failed: update the modules that it names"
    fi
}

# An archive, and the list of components of each program in it.
archive() {
    local name=muster_${version#v}_${GOOS}_$GOARCH programs="muster muster-server"
    [[ $GOOS != windows ]] || programs=muster-server
    local dir=$work/$name
    mkdir "$dir"
    cp -r LICENSE README.md CHANGELOG.md dist/man dist/completions "$dir"
    for files in deploy/systemd deploy/launchd deploy/rc.d; do
        [[ ! -d $files ]] || cp -r "$files" "$dir"
    done
    for program in $programs; do
        go build -ldflags "-s -w -buildid= -X muster/internal/cli.buildVersion=$version" -o "$dir/" "./cmd/$program"
        deploy/release/licenses.sh "./cmd/$program" >"$dir/THIRD_PARTY_LICENSES.$program"
        bin/tools/cyclonedx-gomod bin -json -std -noserial -notimestamp -version "$version" \
            -output "$new/${name/muster/$program}.cdx.json" "$dir/$program$(go env GOEXE)"
    done
    tar -C "$work" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --format=ustar \
        --mode=u=rwX,go=rX -c "$name" | gzip -9n >"$new/$name.tar.gz"
    rm -r "$dir"
}

# What was built of which commit, with which compiler: in-toto's statement with SLSA's predicate.
provenance() {
    local subjects
    subjects=$(cd "$new" && sha256sum -- * |
        sed -E 's/(.*)  (.*)/{"name":"\2","digest":{"sha256":"\1"}}/' | paste -sd,)
    cat <<END
{"_type":"https://in-toto.io/Statement/v1","subject":[$subjects],
"predicateType":"https://slsa.dev/provenance/v1","predicate":{
"buildDefinition":{"buildType":"urn:muster:make-release:v1","externalParameters":{"version":"$version"},
"internalParameters":{"toolchain":"$GOTOOLCHAIN"},
"resolvedDependencies":[{"uri":"git:muster","digest":{"gitCommit":"$(git rev-parse HEAD)"}}]},
"runDetails":{"builder":{"id":"${BUILDER-urn:muster:local}"}}}}
END
}

vulnerabilities
make man licenses VERSION="$version"
GOBIN=$PWD/bin/tools go install "github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@$CYCLONEDX_GOMOD_VERSION"
for system in $systems; do
    GOOS=${system%/*} GOARCH=${system#*/} archive
done
printf '%s\n' "$notes" | sed '/./,$!d' >"$new/RELEASE_NOTES.md"
provenance >"$work/provenance.json"
mv "$work/provenance.json" "$new/muster_${version#v}.provenance.json"
(cd "$new" && sha256sum -- *) >"$work/SHA256SUMS"
mv "$work/SHA256SUMS" "$new"
[[ -z $key ]] || openssl dgst -sha256 -sign "$key" -out "$new/SHA256SUMS.sig" "$new/SHA256SUMS"

rm -rf "$out"
mkdir -p dist/release
mv "$new" "$out"
echo "release: $out is complete" >&2
