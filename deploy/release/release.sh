#!/usr/bin/env bash
# Makes dist/release/VERSION of a clean commit: release.sh VERSION [KEY]. KEY is a private key in PEM, P-256 or RSA, which
# signs the checksums. SYSTEMS limits the archives; packages and image need linux/amd64 and linux/arm64. A commit gives
# the same bytes in each directory; only the signature differs.
set -euo pipefail
cd "$(dirname "$0")/../.."

fail() { echo "release: $2" >&2 && exit "$1"; }
sign() { openssl dgst -sha256 -sign <(printf '%s\n' "$pem") "$@"; }

version=${1-} key=${2-} number=${1#v}
systems=${SYSTEMS-linux/amd64 linux/arm64 linux/riscv64 darwin/amd64 darwin/arm64 freebsd/amd64 windows/amd64 windows/arm64}
[[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-(alpha|beta|rc)[0-9]+)?$ ]] ||
    fail 2 "version is \"$version\", want one such as v0.1.0 or v0.1.0-rc1"
# Read now, so that a passphrase is asked for before the long build and not after it.
[[ -z $key ]] || { pem=$(openssl pkey -in "$key" 2>/dev/null) && sign </dev/null >/dev/null 2>&1; } ||
    fail 1 "key $key does not sign: want a private key in PEM, P-256 or RSA, and its passphrase if it has one"
[[ -z $(git status --porcelain) ]] || fail 1 "the tree differs from its commit: commit or remove what git status shows"
notes=$(awk -v "number=$number" '/^## /{on = ($2 == "[" number "]" || $3 == number); next} on' CHANGELOG.md)
[[ $notes ]] || fail 1 "CHANGELOG.md has no section for $number: add one, with ## [$number] as its heading"

unset GOEXPERIMENT
GOTOOLCHAIN=$(awk '$1 == "toolchain" {print $2}' go.mod)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export GOTOOLCHAIN SOURCE_DATE_EPOCH GOAMD64=v1 LC_ALL=C TZ=UTC
export CGO_ENABLED=0 GOFLAGS=-trimpath # as for the programs, so that the tools share compiled packages with them
out=dist/release/$version
mkdir -p dist/release
work=$(mktemp -d "$PWD/dist/release/.new.XXXXXX") # renamed into place, so that no incomplete release is there
trap 'rm -rf "$work"' EXIT
new=$work/release
mkdir "$new"

# Vulnerabilities in what is linked. The database is a service of the Go project.
vulnerabilities() {
    if ! curl -fsS -m 20 -o /dev/null https://vuln.go.dev/index/db.json 2>/dev/null; then
        echo "release: https://vuln.go.dev is not reachable: vulnerabilities are not checked" >&2
    elif ! make vuln; then
        fail 1 "govulncheck failed: update the modules that it names"
    fi
}

# A tar of files in a directory, with the same bytes for the same contents.
pack() {
    tar -C "$1" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --format=ustar \
        --mode=u=rwX,go=rX -c "${@:2}"
}

# The archive of a system, and the list of components of each program in it.
archive() {
    local system=${1/\//_} services sbom
    local name=muster_${number}_$system
    case $system in
        linux_*) services=(deploy/{systemd,openrc}) ;;
        darwin_*) services=(deploy/launchd) ;;
        freebsd_*) services=(deploy/rc.d) ;;
        *) services=() ;;
    esac
    mkdir "$work/$name"
    cp -r LICENSE README.md CHANGELOG.md docs examples dist/man dist/completions "dist/bin/${1/\//-}"/* "${services[@]}" \
        "$work/$name"
    for sbom in "$work/$name"/*.cdx.json; do
        mv "$sbom" "$new/$(basename "$sbom" .cdx.json)_${number}_$system.cdx.json"
    done
    pack "$work" "$name" | gzip -n >"$new/$name.tar.gz"
    rm -r "${work:?}/$name"
}

# What helm package makes, which has the time of day in it.
chart() {
    cp -rL deploy/helm/muster "$work/muster" # with what its links name
    sed -i "s/^version: .*/version: $number/; s/^appVersion: .*/appVersion: $version/" "$work/muster/Chart.yaml"
    pack "$work" muster | gzip -9n >"$new/muster-$number.tgz"
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
make packages image VERSION="$version" SYSTEMS="$systems"
for system in $systems; do archive "$system"; done
cp dist/packages/* "$new"
pack dist/image blobs index.json oci-layout >"$new/muster_${number}_image.tar"
chart
printf '%s\n' "$notes" | sed '/./,$!d' >"$new/RELEASE_NOTES.md"
provenance >"$work/provenance.json"
mv "$work/provenance.json" "$new/muster_$number.provenance.json"
(cd "$new" && sha256sum -- *) >"$work/SHA256SUMS"
mv "$work/SHA256SUMS" "$new"
signed='not signed, for want of KEY'
if [[ $key ]]; then
    sign -out "$new/SHA256SUMS.sig" "$new/SHA256SUMS"
    signed=signed
fi

rm -rf "$out"
mv "$new" "$out"
echo "release: $out is complete, $signed" >&2
