#!/usr/bin/env bash
# install.sh PROGRAM BIN: installs the program in the directory BIN, with units and documents, below DESTDIR and PREFIX.
# man and completions in DIST are made before.
set -euo pipefail
cd "$(dirname "$0")/.."
program=$1 bin=$2 prefix=${PREFIX:-/usr/local} init=${INIT:-systemd} dist=${DIST:-dist}
usr=${DESTDIR:-}$prefix doc=$usr/share/doc/$program

put() { # MODE FILE... DIRECTORY
    install -d -m 0755 "${!#}"
    install -m "$@"
}

service() { # MODE FILE TO: with the path of the program
    install -d -m 0755 "${3%/*}"
    sed "s|/usr/bin/|$prefix/bin/|" "$2" >"$3"
    chmod "$1" "$3"
}

put 0755 "$bin/$program" "$usr/bin"
put 0644 deploy/packages/copyright LICENSE "$doc"
gzip -9nc CHANGELOG.md >"$doc/changelog.gz"
chmod 0644 "$doc/changelog.gz"
if [ -e "$bin/$program.licenses.txt" ]; then put 0644 "$bin/$program.licenses.txt" "$doc"; fi

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

if [ "$program" = muster-server ]; then
    install -d -m 0755 "${DESTDIR:-}"/etc/muster/{certificates.d,actions.d,tls}
    service 0644 deploy/certmonger/muster "${DESTDIR:-}/var/lib/certmonger/cas/muster"
fi

if [ "$init" = openrc ]; then
    service 0755 "deploy/openrc/${services[0]}" "${DESTDIR:-}/etc/init.d/${services[0]}"
    exit
fi
for name in "${services[@]}"; do
    service 0644 "deploy/systemd/$name.service" "$usr/lib/systemd/system/$name.service"
done
if [ "$program" = muster ]; then
    service 0644 deploy/systemd/muster.sysusers "$usr/lib/sysusers.d/muster.conf"
    service 0644 deploy/systemd/muster.tmpfiles "$usr/lib/tmpfiles.d/muster.conf"
else
    service 0644 deploy/systemd/muster-server.path "$usr/lib/systemd/system/muster-server.path"
    service 0644 deploy/systemd/muster-server.preset "$usr/lib/systemd/system-preset/50-muster-server.preset"
fi
