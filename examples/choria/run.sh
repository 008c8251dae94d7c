#!/bin/sh
# Starts muster, two brokers of a Choria fleet and Choria servers on this machine, and provisions the servers.
# See README.md.
set -eu
cd "$(dirname "$0")/../.."

nodes=${NODES:-20}
port=${PORT:-14240}
[ -x "${CHORIA:-}" ] || { echo "set CHORIA to a choria program: see examples/choria/README.md" >&2; exit 1; }
[ "$(id -u)" -eq 0 ] || { echo "each server gets a host name of its own: run this as root" >&2; exit 1; }
choria=$(realpath "$CHORIA")
work=$(mktemp -d)
pids=

finish() {
  for pid in $pids; do kill "$pid" 2>/dev/null || true; done
  for pid in $pids; do wait "$pid" 2>/dev/null || true; done
  if [ -z "${KEEP:-}" ]; then rm -rf "$work"; else echo "the files are in $work"; fi
}
trap finish EXIT
trap 'exit 1' INT TERM

# Runs a command in the background, with its output in a file.
run() {
  log=$1
  shift
  "$@" > "$log" 2>&1 &
  pids="$pids $!"
}
# Waits until a command succeeds.
await() {
  left=480
  until "$@" > /dev/null 2>&1; do
    left=$((left - 1))
    if [ "$left" -eq 0 ]; then
      tail -n 20 "$work"/*.log "$work"/*/log >&2
      exit 1
    fi
    sleep 0.25
  done
}

# MUSTER and NATS_SERVER name existing programs; otherwise the script builds them from go.mod.
muster=${MUSTER:-$work/muster}
nats_server=${NATS_SERVER:-$work/nats-server}
[ -n "${MUSTER:-}" ] || go build -o "$muster" ./cmd/muster
[ -n "${NATS_SERVER:-}" ] || go build -o "$nats_server" github.com/nats-io/nats-server/v2

muster=$(realpath "$muster") nats_server=$(realpath "$nats_server")
cd "$work"
export MUSTER_CONFIG="$work/prov/provisioner.yaml"
v1=localhost:$((port + 1)) v2=localhost:$((port + 2))

# The installation. The fleet has an authority of its own, which certifies its brokers and its operators.
"$muster" provisioner init prov --host localhost --trust-domain example.net --trust-first-use \
  --listen "127.0.0.1:$port" > init.log 2>&1
od -An -tx1 -N16 /dev/urandom | tr -d ' \n' > prov/secret
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=localhost \
  -addext subjectAltName=DNS:localhost -keyout fleet-key.pem -out fleet.pem 2> openssl.log
openssl req -newkey rsa:2048 -nodes -subj /CN=ops.mcollective -keyout ops-key.pem -out ops.csr 2>> openssl.log
echo subjectAltName=DNS:ops.mcollective > ops.ext
openssl x509 -req -in ops.csr -CA fleet.pem -CAkey fleet-key.pem -days 30 -extfile ops.ext -out ops.pem 2>> openssl.log
chmod 600 prov/secret ops-key.pem

# The organization signs an issuer for muster, and the identity of its broker.
for name in organization issuer broker; do "$choria" jwt keys $name.seed $name.public > /dev/null; done
"$choria" jwt client issuer.jwt muster organization.seed --issuer --no-fleet-management --validity 720h \
  --public-key "$(cat issuer.public)" > /dev/null
"$choria" jwt server broker.jwt localhost "$(cat broker.public)" organization.seed > /dev/null

# Servers of protocol 1 go to a stock nats-server that demands certificates of muster's authority.
cat prov/ca/root.pem fleet.pem > clients.pem
cat > nats.conf <<EOF
listen: "$v1"
tls { cert_file: fleet.pem, key_file: fleet-key.pem, ca_file: clients.pem, verify: true }
EOF
run nats.log "$nats_server" -c nats.conf

# Servers of protocol 2 go to Choria's broker, which demands server JWTs of the organization.
cat > broker.conf <<EOF
identity = localhost
loglevel = info
plugin.choria.broker_network = true
plugin.choria.network.listen_address = 127.0.0.1
plugin.choria.network.client_port = ${v2#*:}
plugin.choria.use_srv = false
plugin.security.provider = choria
plugin.security.issuer.names = choria
plugin.security.issuer.choria.public = $(cat organization.public)
plugin.security.choria.token_file = $work/broker.jwt
plugin.security.choria.seed_file = $work/broker.seed
plugin.security.choria.certificate = $work/fleet.pem
plugin.security.choria.key = $work/fleet-key.pem
plugin.security.choria.ca = $work/fleet.pem
EOF
run broker.log "$choria" broker run --config broker.conf

sed "s|^choria:|choria:\\
  brokers: [$v1, $v2]\\
  ca: ../fleet.pem\\
  issuer:\\
    token: ../issuer.jwt\\
    seed: ../issuer.seed\\
  fleet:\\
    url: tls://$v1\\
    ca: ../fleet.pem\\
    certificate: ../ops.pem\\
    key: ../ops-key.pem|" prov/provisioner.yaml > provisioner.yaml
mv provisioner.yaml prov/provisioner.yaml
cat > prov/policy/choria.rego <<EOF
package muster.enroll

configuration := {
    "loglevel": "info",
    "rpcauthorization": "0",
    "plugin.choria.middleware_hosts": concat("", ["nats://", brokers[input.csr.key.type]]),
}

brokers := {"RSA-2048": "$v1", "Ed25519": "$v2"}

deny contains "this machine is for spare parts" if input.identity == "spare.example.net"

shutdown if input.identity == "retired.example.net"
EOF
run prov.log "$muster" provisioner run
await "$muster" token list

sign() {
  "$muster" jwt "$@" prov/signer-key.pem --insecure --secret-file prov/secret --default --urls "localhost:$port" \
    --ca prov/ca/root.pem > sign.log 2>&1
}
sign v1.jwt
sign v2.jwt --protocol-v2

# Starts a server with a host name, a token and a directory of its own.
boot() {
  mkdir "$1"
  cp "$2" "$1/provisioning.jwt"
  run "$1/log" unshare --uts sh -c 'hostname "$0" && cd "$1" && shift && exec "$@"' "$1" "$work/$1" \
    "$choria" server run --config "$work/$1/server.conf"
}
i=1
while [ "$i" -le "$nodes" ]; do
  boot "web$i.example.net" "v$((2 - i % 2)).jwt"
  i=$((i + 1))
done
boot spare.example.net v1.jwt
boot retired.example.net v2.jwt
retired=${pids##* }

# Tells whether each server has connected to its broker in the fleet so many times.
arrived() {
  i=$2
  while [ "$i" -le "$nodes" ]; do
    broker=$v1
    [ $((i % 2)) -eq 1 ] || broker=$v2
    [ "$(grep -c "Connected to nats://$broker" "web$i.example.net/log")" -ge "$1" ] || return 1
    i=$((i + $3))
  done
}
await arrived 1 1 1
"$muster" node list --protocol choria
echo "$nodes servers are in the fleet"

await grep -q 'code=denied' prov.log
"$muster" node explain spare.example.net
wait "$retired" && echo "the policy has shut down retired.example.net"

# The client of the fleet in prov/provisioner.yaml commands servers of protocol 1.
targets=$(seq 1 2 "$nodes" | sed 's/.*/web&.example.net/')
# shellcheck disable=SC2086 # several names
"$muster" node reprovision $targets --secret-file prov/secret --why "an example" --yes
await arrived 2 1 2
"$muster" node list --protocol choria
echo "all servers of protocol 1 were provisioned again"
