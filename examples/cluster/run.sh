#!/bin/sh
# Starts three nats-server processes and several provisioners on this machine, and
# enrolls nodes through all of them. See README.md.
set -eu
cd "$(dirname "$0")/../.."

nodes=${NODES:-20}
provisioners=${PROVISIONERS:-2}
address=${ADDRESS:-127.0.0.1}
port=${PORT:-14220}
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

# MUSTER and NATS_SERVER name existing programs; otherwise the script builds them from go.mod.
muster=${MUSTER:-$work/muster}
nats_server=${NATS_SERVER:-$work/nats-server}
[ -n "${MUSTER:-}" ] || go build -o "$muster" ./cmd/muster
[ -n "${NATS_SERVER:-}" ] || go build -o "$nats_server" github.com/nats-io/nats-server/v2

servers= nats= routes=
for i in 1 2 3; do
  servers="$servers${servers:+,}tls://$address:$((port + i))"
  nats="$nats${nats:+,}nats://$address:$((port + i))"
  routes="$routes --route $address:$((port + 10 + i))"
done

# All provisioners share one installation. On real machines, run both commands on
# the first provisioner and copy the directories to the servers.
"$muster" provisioner init "$work/p1" --host p1.example.net --trust-domain example.net --trust-first-use \
  --broker-urls "$servers" --broker-name localhost --broker-address "$address" > "$work/init.log" 2>&1
for i in 1 2 3; do
  # shellcheck disable=SC2086 # routes are several words
  "$muster" broker config --config "$work/p1/provisioner.yaml" --host "n$i" --dir "$work/n$i" --write \
    --listen "$address:$((port + i))" --cluster-listen "$address:$((port + 10 + i))" $routes
  "$nats_server" -c "$work/n$i/nats-server.conf" > "$work/n$i.log" 2>&1 &
  pids="$pids $!"
done

# The other provisioners have the same keys, but their own name and data_dir.
i=2
while [ "$i" -le "$provisioners" ]; do
  cp -R "$work/p1" "$work/p$i"
  sed "s/^name: p1/name: p$i/" "$work/p1/provisioner.yaml" > "$work/p$i/provisioner.yaml"
  i=$((i + 1))
done
# Restarts a provisioner, as systemd does: it exits if the store is not usable within a minute.
supervise() {
  trap 'kill "$child" 2>/dev/null; wait "$child"; exit' TERM
  while :; do
    "$muster" provisioner run --config "$work/$1/provisioner.yaml" --log-level warn >> "$work/$1.log" 2>&1 &
    child=$!
    if wait "$child"; then exit; fi
    sleep 1
  done
}
i=1
while [ "$i" -le "$provisioners" ]; do
  supervise "p$i" &
  pids="$pids $!"
  i=$((i + 1))
done

# Waits until every provisioner serves operators.
i=1
while [ "$i" -le "$provisioners" ]; do
  left=1200
  until "$muster" token list --config "$work/p$i/provisioner.yaml" > /dev/null 2>&1; do
    alive
    left=$((left - 1))
    if [ "$left" -eq 0 ]; then
      cat "$work"/*.log
      exit 1
    fi
    sleep 0.25
  done
  i=$((i + 1))
done

"$muster" jwt "$work/provisioning.jwt" "$work/p1/signer-key.pem" --insecure --token "$(od -An -tx1 -N16 /dev/urandom | tr -d ' \n')" \
  --urls "$(echo "$nats" | sed 's#nats://##g')" --default --seal "$work/p1/seal.pub" --ca "$work/p1/ca/root.pem" > /dev/null

# The nodes are spread over the three servers.
i=1
while [ "$i" -le "$nodes" ]; do
  "$muster" server run --token-file "$work/provisioning.jwt" --identity "node$i.example.net" \
    --config "$work/node$i/server.conf" --ssl-dir "$work/node$i/ssl" > "$work/node$i.log" 2>&1 &
  pids="$pids $!"
  i=$((i + 1))
done
i=1
left=1200
while [ "$i" -le "$nodes" ]; do
  if grep -sq 'connected to the fleet' "$work/node$i.log"; then
    i=$((i + 1))
    continue
  fi
  alive
  left=$((left - 1))
  if [ "$left" -eq 0 ]; then
    cat "$work"/*.log
    exit 1
  fi
  sleep 0.25
done
echo "$nodes nodes are in the fleet"
"$muster" node revoke node1.example.net --why "an example" --config "$work/p1/provisioner.yaml"
