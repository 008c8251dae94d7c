#!/bin/sh
# Starts a provisioner that accepts nodes by WebSocket, and a node that connects only
# by WebSocket. See README.md.
set -eu
cd "$(dirname "$0")/../.."

address=${ADDRESS:-127.0.0.1}
port=${PORT:-14420}
work=$(mktemp -d)
pids=

finish() {
  for pid in $pids; do kill "$pid" 2>/dev/null || true; done
  for pid in $pids; do wait "$pid" 2>/dev/null || true; done
  if [ -z "${KEEP:-}" ]; then rm -rf "$work"; fi
}
# Fails at once if a process has ended, as one does whose port is taken.
alive() {
  for pid in $pids; do
    kill -0 "$pid" 2>/dev/null && continue
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

web=$address:$((port + 2))

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

# WebSockets have their own port: ":443" on a real machine.
"$muster" provisioner init "$work/p" --host p1.example.net --trust-domain example.net --trust-first-use \
  --listen "$address:$((port + 1))" --broker-name localhost --broker-address "$address" > "$work/init.log" 2>&1
sed -e 's/^  # websocket:/  websocket:/' -e "s/^  #   listen: \":443\"/    listen: \"$web\"/" "$work/p/provisioner.yaml" > "$work/edited"
mv "$work/edited" "$work/p/provisioner.yaml"

# This configuration names no broker, so nodes keep the one in their token.
printf 'identity = {{ .Identity }}\n' > "$work/p/server.conf"

"$muster" provisioner run --config "$work/p/provisioner.yaml" > "$work/provisioner.log" 2>&1 &
pids="$pids $!"
await provisioner 'provisioner is serving'

"$muster" jwt "$work/provisioning.jwt" "$work/p/signer-key.pem" --token "$(od -An -tx1 -N16 /dev/urandom | tr -d ' \n')" \
  --urls "wss://$web" --default --seal "$work/p/seal.pub" --ca "$work/p/ca/root.pem" > /dev/null

"$muster" server run --token-file "$work/provisioning.jwt" --identity web1.example.net --config "$work/web1/server.conf" \
  --ssl-dir "$work/web1/ssl" > "$work/web1.log" 2>&1 &
pids="$pids $!"
await web1 'connected to the fleet'
await provisioner 'node enrolled.*web1.example.net'

echo "web1 enrolled and joined the fleet through wss://$web"
