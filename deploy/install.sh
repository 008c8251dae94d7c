#!/usr/bin/env bash
# install.sh PROGRAM BIN: installs the program in the directory BIN, with units and documents, below DESTDIR and PREFIX.
# man, completions and licenses in DIST are made before.
set -euo pipefail
cd "$(dirname "$0")/.."
program=$1 bin=$2 prefix=${PREFIX:-/usr/local} init=${INIT:-systemd} dist=${DIST:-dist}
usr=${DESTDIR:-}$prefix doc=$usr/share/doc/$program

put() { # MODE FILE... DIRECTORY
    install -d -m 0755 "${!#}"
    install -m "$@"
}

unit() { # FILE DIRECTORY NAME
    install -d -m 0755 "$2"
    sed "s|/usr/bin/|$prefix/bin/|" "$1" >"$2/$3"
    chmod 0644 "$2/$3"
}

put 0755 "$bin/$program" "$usr/bin"
put 0644 deploy/packages/copyright LICENSE "$doc"
gzip -9nc CHANGELOG.md >"$doc/changelog.gz"
chmod 0644 "$doc/changelog.gz"
if [ -e "$dist/licenses/$program" ]; then put 0644 "$dist/licenses/$program/THIRD_PARTY_LICENSES" "$doc"; fi

services=("muster-server")
pages=("$dist"/man/muster-server*.1.gz)
if [ "$program" = muster ]; then
    services=("muster-provisioner" "muster-broker")
    mapfile -t pages < <(printf '%s\n' "$dist"/man/*.1.gz | grep -v /muster-server)
    put 0644 "$dist/completions/muster" "$usr/share/bash-completion/completions"
    put 0644 "$dist/completions/_muster" "$usr/share/zsh/site-functions"
    put 0644 "$dist/completions/muster.fish" "$usr/share/fish/vendor_completions.d"
fi
put 0644 "${pages[@]}" "$usr/share/man/man1"

if [ "$init" = openrc ]; then
    for name in "${services[@]}"; do
        if [ -e "deploy/openrc/$name" ]; then put 0755 "deploy/openrc/$name" "${DESTDIR:-}/etc/init.d"; fi
    done
    exit
fi
for name in "${services[@]}"; do unit "deploy/systemd/$name.service" "$usr/lib/systemd/system" "$name.service"; done
if [ "$program" = muster ]; then
    unit deploy/systemd/muster.sysusers "$usr/lib/sysusers.d" muster.conf
    unit deploy/systemd/muster.tmpfiles "$usr/lib/tmpfiles.d" muster.conf
else
    unit deploy/systemd/muster-server.path "$usr/lib/systemd/system" muster-server.path
    unit deploy/systemd/muster-server.preset "$usr/lib/systemd/system-preset" 50-muster-server.preset
fi
