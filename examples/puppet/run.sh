#!/bin/sh
# Starts muster and Puppet agents on this machine, and shows how they get certificates and configurations. See README.md.
set -eu
cd "$(dirname "$0")/../.."

port=${PORT:-18140}
command -v puppet > /dev/null || { echo "install an agent: apt-get install puppet-agent" >&2; exit 1; }
[ "$(id -u)" -eq 0 ] || { echo "each agent gets a host name and files of its own: run this as root" >&2; exit 1; }
muster=$(realpath "${MUSTER:-bin/muster}")
puppet8=${PUPPET8:+$(realpath "$PUPPET8")}
work=$(mktemp -d)
pids=

finish() {
  for pid in $pids; do kill "$pid" 2>/dev/null || true; done
  for pid in $pids; do wait "$pid" 2>/dev/null || true; done
  if [ -z "${KEEP:-}" ]; then rm -rf "$work"; else echo "the files are in $work"; fi
}
trap finish EXIT
trap 'exit 1' INT TERM

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
step() { printf '\n== %s\n' "$1"; }

# The installation. `muster ca puppet` makes the authority of the agents.
cd "$work"
export MUSTER_CONFIG="$work/prov/provisioner.yaml"
"$muster" provisioner init prov --host localhost --trust-domain example.net \
  --listen "127.0.0.1:$((port + 1))" > init.log 2>&1
"$muster" ca puppet > ca.log 2>&1
sed "s|^puppet:|puppet:\\
  listen: 127.0.0.1:$port\\
  names: [localhost]\\
  bundle: puppet-ca/bundle.pem\\
  key: puppet-ca/key.pem\\
  root_crl: puppet-ca/root-crl.pem|" prov/provisioner.yaml > provisioner.yaml
mv provisioner.yaml prov/provisioner.yaml
cat > prov/policy/puppet.rego <<'EOF'
package muster.enroll

# Other machines wait for an approval.
allow if input.csr.extensions.pp_role == "web"

deny contains "this machine is for spare parts" if input.identity == "spare.example.net"

certificate := {"extensions": {"pp_role": input.csr.extensions.pp_role}} if input.identity != "renews.example.net"

certificate := {"ttl": "90s"} if input.identity == "renews.example.net"

configuration := {
    "identity": input.identity,
    "brokers": "nats://broker.example.net:4222",
    "role": object.get(input.csr.extensions, "pp_role", "none"),
}
EOF
"$muster" provisioner run > prov.log 2>&1 &
pids=$!
await "$muster" token list
head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n' > prov/secret
chmod 600 prov/secret
"$muster" jwt token.jwt prov/signer-key.pem --insecure --secret-file prov/secret --default --urls "localhost:$((port + 1))" \
  --identity '*.example.net' > sign.log 2>&1

# Makes a machine: name, csr_attributes.yaml.
machine() {
  mkdir -p "$1/conf" "$1/muster"
  cat > "$1/conf/puppet.conf" << EOF
[main]
certname = $1
server = localhost
serverport = $port
vardir = $work/$1/var
ssldir = \$vardir/ssl
logdir = \$vardir/log
rundir = \$vardir/run
publicdir = \$vardir/public
EOF
  printf '%b' "$2" > "$1/conf/csr_attributes.yaml"
}
# Runs an agent on a machine: version, name, arguments. It has the machine's /etc/muster and no other processes.
agent() {
  version=$1 name=$2
  shift 2
  if [ "$version" = 8 ]; then set -- ruby -I "$puppet8/lib" "$puppet8/bin/puppet" "$@"; else set -- puppet "$@"; fi
  unshare --uts --mount --pid --fork --kill-child --mount-proc sh -c \
    'hostname "$0" && mount --bind "$1" /etc/muster && shift && exec "$@"' "$name" "$work/$name/muster" \
    "$@" --confdir "$work/$name/conf" --color false > "$name/log" 2>&1
}
# Runs an agent that ends with a status.
status() {
  want=$1
  shift
  got=0
  agent "$@" || got=$?
  [ "$got" -eq "$want" ] || { echo "agent $2 ended with $got, want $want:" >&2; cat "$2/log" >&2; exit 1; }
}
secret() { printf 'custom_attributes:\n  1.2.840.113549.1.9.7: "%s"\n' "$1"; }
mkdir -p /etc/muster
versions=7
[ -z "$puppet8" ] || versions="7 8"

# Agents of version 8 renew when less than 30 days are left, and muster after two thirds of the lifetime.
renews=
if [ -n "$puppet8" ]; then
  machine renews.example.net 'extension_requests:\n  pp_role: web\n'
  status 0 8 renews.example.net ssl bootstrap
  (sleep 62 && status 2 8 renews.example.net agent --test) &
  renews=$!
fi

for v in $versions; do
  step "Agent $v: the policy admits the role web, and a run writes the configuration"
  machine "web$v.example.net" 'extension_requests:\n  pp_role: web\n'
  status 2 "$v" "web$v.example.net" agent --test
  grep -E "Signed|Downloaded|File\[|Applied" "web$v.example.net/log"
  ls -l "web$v.example.net/muster/server.conf"
  sha256sum "web$v.example.net/muster/server.conf"
  cat "web$v.example.net/muster/server.conf"
done
"$muster" node show web7.example.net

step "An agent without a token waits until its key is approved"
machine db1.example.net ''
agent 7 db1.example.net ssl bootstrap --waitforcert 1 &
waiting=$!
await sh -c "\"$muster\" node pending -o name | grep -q db1"
"$muster" node pending
"$muster" node approve db1.example.net --why 'racked today'
wait "$waiting" && echo "the agent has its certificate"

step "An agent is refused with a reason"
machine spare.example.net "$(secret "$(cat token.jwt)")"
status 1 7 spare.example.net ssl bootstrap --waitforcert 0
tail -n 2 spare.example.net/log
"$muster" node explain spare.example.net

step "A one-time token is for one machine, once"
machine app1.example.net "$(secret "$("$muster" node grant app1.example.net --one-time --why 'new machine' 2> grant.log)")"
status 0 7 app1.example.net ssl bootstrap
"$muster" node history app1.example.net

step "A rebuilt machine has another key, and needs another one-time token"
rm -r web7.example.net/var
status 1 7 web7.example.net ssl bootstrap --waitforcert 0
"$muster" events --node web7.example.net --code identity_taken
machine web7.example.net "$(secret "$("$muster" node grant web7.example.net --one-time --why 'new disk' 2> grant.log)")"
rm -r web7.example.net/var
status 0 7 web7.example.net ssl bootstrap
"$muster" node list

if [ -n "$renews" ]; then
  step "Agent 8 renewed its certificate in a run, with the same key"
  wait "$renews"
  grep Renewed renews.example.net/log
  "$muster" node history renews.example.net
fi

step "A revoked agent is refused"
"$muster" node revoke db1.example.net --why 'sold' --yes
status 1 7 db1.example.net agent --test
tail -n 2 db1.example.net/log
