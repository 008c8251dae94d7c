#!/bin/sh
# Of deb ("configure" and the former version) and rpm (the number of versions). In an image that is being made, systemd
# does not run: the agent starts at the first boot.
set -e
units="muster-server.path muster-server.service"
case "$1" in configure | [0-9]*) ;; *) exit 0 ;; esac
command -v systemctl >/dev/null || exit 0
first=
if [ "$1" = 1 ] || { [ "$1" = configure ] && [ -z "$2" ]; }; then first=yes; fi
# shellcheck disable=SC2086 # a list
[ -z "$first" ] || systemctl preset $units
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
[ -n "$first" ] || systemctl --no-block try-restart muster-server.service
for unit in ${first:+$units}; do
    if systemctl is-enabled --quiet "$unit"; then systemctl --no-block start "$unit"; fi
done
