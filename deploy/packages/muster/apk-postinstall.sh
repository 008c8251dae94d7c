#!/bin/sh
# 'muster provisioner init' gives the setup to the owner of this directory.
install -d -m 0700 -o muster -g muster /var/lib/muster
