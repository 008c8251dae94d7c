#!/bin/sh
# Starts a hub and a site on this machine, each with a broker and a provisioner, and
# enrolls nodes at the site. See README.md.
set -eu
cd "$(dirname "$0")/../.."

address=${ADDRESS:-127.0.0.1}
port=${PORT:-14320}
work=$(mktemp -d)
pids= stopped=

finish() {
  for pid in $pids; do kill "$pid" 2>/dev/null || true; done
  for pid in $pids; do wait "$pid" 2>/dev/null || true; done
  if [ -z "${KEEP:-}" ]; then rm -rf "$work"; fi
}
# Fails at once if a process has ended, as one does whose port is taken.
alive() {
  for pid in $pids; do
    kill -0 "$pid" 2>/dev/null && continue
    [ "$pid" = "$stopped" ] && continue
    if grep -s 'address already in use' "$work"/*.log >&2; then
      echo "a port is taken: set PORT to another first port" >&2
    else
      cat "$work"/*.log >&2
    fi
    exit 1
  done
}
trap finish EXIT
trap 'exit 1' INT TERM

muster=${MUSTER:-$work/muster}
[ -n "${MUSTER:-}" ] || go build -o "$muster" ./cmd/muster

hub=$address:$((port + 1)) leaves=$address:$((port + 2)) site=$address:$((port + 3))

# Runs muster in the background, with its own log.
start() {
  log=$work/$1.log
  shift
  "$muster" "$@" > "$log" 2>&1 &
  pids="$pids $!"
}

# Waits up to 60 s until a log has a matching line.
await() {
  tries=0
  until grep -sq -e "$2" "$work/$1.log"; do
    alive
    tries=$((tries + 1))
    if [ "$tries" -gt 600 ]; then
      echo "no \"$2\" in $1.log" >&2
      cat "$work"/*.log >&2
      exit 1
    fi
    sleep 0.1
  done
}

# Hub and site share one installation. The hub's broker admits the site's broker by
# the name in its certificate. The site's broker has no streams.
"$muster" provisioner init "$work/hub" --host p1.example.net --trust-domain example.net --trust-first-use \
  --broker-urls "tls://$hub" --replicas 1 --broker-name localhost --broker-address "$address" > "$work/init.log" 2>&1
printf 'identity = {{ .Identity }}\n' > "$work/hub/server.conf" # names no brokers: nodes keep those in their tokens
"$muster" broker config --config "$work/hub/provisioner.yaml" --host broker.hub --listen "$hub" \
  --leaf broker.ams1 --leaf-listen "$leaves" --dir "$work/broker-hub" --write
"$muster" broker config --config "$work/hub/provisioner.yaml" --host broker.ams1 --listen "$site" \
  --site ams1 --hub "$leaves" --dir "$work/broker-ams1" --write

# The site's provisioner has the same keys, but its own name, site and broker.
cp -R "$work/hub" "$work/ams1"
sed -e 's/^name: .*/name: p2.example.net/' -e 's/^# site: .*/site: ams1/' -e "s#tls://$hub#tls://$site#" \
  "$work/hub/provisioner.yaml" > "$work/ams1/provisioner.yaml"

start broker-hub broker run "$work/broker-hub/nats-server.conf"
start broker-ams1 broker run "$work/broker-ams1/nats-server.conf"
start p1 provisioner run --config "$work/hub/provisioner.yaml"
await p1 'provisioner is serving'
start p2 provisioner run --config "$work/ams1/provisioner.yaml"
p2=$!
await p2 'provisioner is serving'

# This token is valid only at the site and names the site's broker.
"$muster" jwt "$work/provisioning.jwt" "$work/hub/signer-key.pem" --insecure --token "$(od -An -tx1 -N16 /dev/urandom | tr -d ' \n')" \
  --urls "$site" --site ams1 --default --seal "$work/hub/seal.pub" --ca "$work/hub/ca/root.pem" > /dev/null

node() {
  start "$1" server run --token-file "$work/provisioning.jwt" --identity "$1.example.net" --config "$work/$1/server.conf" --ssl-dir "$work/$1"
}
node web1
await web1 'connected to the fleet'
await p2 'node enrolled.*web1.example.net'
echo "web1 was enrolled by the provisioner of its site, ams1"

stopped=$p2
kill "$p2"
wait "$p2" || true
node web2
await web2 'connected to the fleet'
await p1 'node enrolled.*web2.example.net'
echo "web2 was enrolled by the hub's, while the site had none"
