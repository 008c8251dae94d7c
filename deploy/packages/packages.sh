#!/usr/bin/env bash
# Makes DIST/packages: deb, rpm and apk of muster and muster-server for each of ARCHES, from DIST/bin/linux-ARCH. NFPM is
# the program. VERSION is the tag of a release, or another name of a commit, whose packages sort before all releases.
# MAINTAINER and HOMEPAGE name the distributor; example.net has no mailbox.
set -euo pipefail
cd "$(dirname "$0")/../.."
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
if ! [[ $VERSION =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-(alpha|beta|rc)[0-9]+)?$ ]]; then
    VERSION=v0.0.0-git$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y%m%d%H%M%S)
fi
MAINTAINER=${MAINTAINER:-the muster authors <muster@example.net>} HOMEPAGE=${HOMEPAGE:-}
export SOURCE_DATE_EPOCH VERSION MAINTAINER HOMEPAGE GOARCH DIST=${DIST:-dist}

out=$(realpath -m "$DIST")/packages work=$(mktemp -d) nfpm=$(realpath "${NFPM:?}")
trap 'rm -rf "$work"' EXIT
rm -rf "$out"
mkdir -p "$out"
cp -r deploy/packages "$work"
chmod -R u=rwX,go=rX "$work/packages" # a deb has the modes of its scripts
cat >"$work/packages/changelog.yaml" <<END
- {semver: ${VERSION#v}, date: "$(date -u -d "@$SOURCE_DATE_EPOCH" +%FT%TZ)", packager: "$MAINTAINER",
   deb: {urgency: medium, distributions: [unstable]}, changes: [{note: See changelog.gz beside this file.}]}
END

package() { # PROGRAM INIT FORMAT...
    rm -rf "$work/stage"
    DESTDIR=$work/stage PREFIX=/usr INIT=$2 deploy/install.sh "$1" "$DIST/bin/linux-$GOARCH"
    find "$work" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} + # apk has these times
    for format in "${@:3}"; do
        (cd "$work" && "$nfpm" package -f "packages/$1.yaml" -p "$format" -t "$out/")
    done
}

for GOARCH in ${ARCHES:-amd64 arm64}; do
    for program in muster muster-server; do
        package "$program" systemd deb rpm
        package "$program" openrc apk
    done
done
