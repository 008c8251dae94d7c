#!/bin/sh
# Of deb ("remove") and rpm (0 versions remain). Keys, records and the user stay.
set -e
case "$1" in remove | 0) ;; *) exit 0 ;; esac
systemctl disable muster-broker.service muster-provisioner.service
[ ! -d /run/systemd/system ] || systemctl stop muster-broker.service muster-provisioner.service
