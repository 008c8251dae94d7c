#!/bin/sh
# Runs a node of run.sh: the agent, and haproxy and nginx as soon as they have certificates. NAME, ADDRESS, PORT,
# NGINX_PORT and SERVER are set. The node has its own /etc/muster and /run.
set -eu
mount --bind "$1" /etc/muster
mount -t tmpfs tmpfs /run
mkdir -p /run/muster-server/nginx
"$SERVER" run --token-file /etc/muster/token.jwt --identity "$NAME" --facts /etc/muster/facts.json \
  2> /etc/muster/agent.log &
until [ -s /etc/muster/tls/haproxy.pem ] && [ -s /etc/muster/tls/nginx.pem ]; do sleep 0.2; done
nginx -c /etc/muster/nginx.conf -g 'daemon off;' 2> /etc/muster/nginx.log &
haproxy -W -p /run/muster-server/haproxy.pid -f /etc/muster/haproxy.cfg 2> /etc/muster/haproxy.log &
wait
