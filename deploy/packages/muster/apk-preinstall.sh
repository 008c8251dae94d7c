#!/bin/sh
addgroup -S muster 2>/dev/null
adduser -S -D -H -h /var/lib/muster -s /sbin/nologin -G muster -g 'muster provisioner' muster 2>/dev/null
exit 0 # both fail if they exist
