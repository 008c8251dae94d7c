#!/bin/sh
# Of deb, which calls it with "configure", and of rpm, which calls it with the number of versions. It starts nothing.
set -e
case "$1" in configure | [0-9]*) ;; *) exit 0 ;; esac
systemd-sysusers muster.conf
systemd-tmpfiles --create muster.conf
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
systemctl --no-block try-restart muster-broker.service muster-provisioner.service
