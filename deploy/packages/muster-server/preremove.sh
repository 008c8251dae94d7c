#!/bin/sh
# Of deb ("remove") and rpm (0 versions remain). Key, certificate and configuration stay.
set -e
case "$1" in remove | 0) ;; *) exit 0 ;; esac
command -v systemctl >/dev/null || exit 0
systemctl disable muster-server.path muster-server.service
[ ! -d /run/systemd/system ] || systemctl stop muster-server.path muster-server.service
