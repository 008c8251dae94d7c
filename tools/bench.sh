#!/bin/sh
# The standard cases of `muster bench`, each with a provisioner and a store of its own. NODES, STORED and IDLE set their
# sizes; arguments are flags of each case.
set -eu
muster=${MUSTER:-bin/muster} nodes=${NODES:-40000} stored=${STORED:-1000000} idle=${IDLE:-10000}

run() {
  printf '\n%s\n' "$1"
  shift
  "$muster" bench --nodes "$nodes" "$@"
}

first=$(run "shared connections" "$@")
echo "$first"
# Four fifths of the peak rate for at most half a minute.
rate=$(echo "$first" | awk '/^provisioned/ {r = int($2 * 0.8 / 60); print r < 1 ? 1 : r}')
all=$nodes nodes=$((rate * 30 < 3 * nodes ? rate * 30 : 3 * nodes))
run "open loop at 80 % of that rate" --rate "$rate" "$@"
nodes=$all
run "$stored records stored" --stored "$stored" "$@"
run "$idle nodes connected" --idle "$idle" "$@"
run "20 KB of facts" --facts-bytes 20480 "$@"
run "new TCP connections" --connections per-node "$@"
run "new TCP connections, sealed" --connections per-node --sealed "$@"
run "new TLS connections" --connections per-node --tls "$@"
run "new TCP connections, limited token" --connections per-node --uses "$nodes" "$@"
run "the same, two provisioners at a broker" --connections per-node --provisioners 2 "$@"
# Each Choria server needs an RSA key, and their rate is much lower.
nodes=$((nodes < 10000 ? nodes : 10000))
run "Choria servers" --choria "$@"
