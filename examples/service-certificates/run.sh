#!/bin/sh
# Starts muster and two nodes with haproxy and nginx on this machine, and renews their certificates under load. See
# README.md.
set -eu
here=$(realpath "$(dirname "$0")")
cd "$here/../.."

port=${PORT:-18443} seconds=${TIME:-180} life=${LIFE:-1m} renew=${RENEW:-30s} fewest=${CERTIFICATES:-6}
for p in haproxy nginx curl openssl; do
  command -v "$p" > /dev/null || { echo "install $p: apt-get install haproxy nginx-light curl openssl" >&2; exit 1; }
done
[ "$(id -u)" -eq 0 ] || { echo "each node gets files of its own: run this as root" >&2; exit 1; }
muster=$(realpath "${MUSTER:-bin/muster}")
server=$(realpath "${MUSTER_SERVER:-bin/muster-server}")
work=$(mktemp -d)
provisioner='' nodes=''

finish() {
  for pid in $nodes; do kill -KILL "$pid" 2>/dev/null || true; done # unshare ignores SIGTERM
  [ -z "$provisioner" ] || kill "$provisioner" 2>/dev/null || true
  for pid in $provisioner $nodes; do wait "$pid" 2>/dev/null || true; done
  if [ -z "${KEEP:-}" ]; then rm -rf "$work"; else echo "the files are in $work"; fi
}
trap finish EXIT
trap 'exit 1' INT TERM

# Waits until a command succeeds.
await() {
  left=240
  until "$@" > /dev/null 2>&1; do
    left=$((left - 1))
    if [ "$left" -eq 0 ]; then
      echo "does not succeed: $*" >&2
      tail -n 20 "$work"/*.log "$work"/web*/*.log >&2
      exit 1
    fi
    sleep 0.25
  done
}
step() { printf '\n== %s\n' "$1"; }

step "The policy for service certificates passes its tests"
cd "$work"
export MUSTER_CONFIG="$work/prov/provisioner.yaml"
"$muster" provisioner init prov --host localhost --trust-domain example.net --listen "127.0.0.1:$((port + 2))" \
  > init.log 2>&1
cp "$here"/policy/* prov/policy/
"$muster" policy test prov/policy
sed -i "s/\"lifetime\": .*,/\"lifetime\": \"$life\",/" prov/policy/data.json

"$muster" provisioner run > prov.log 2>&1 &
provisioner=$!
await "$muster" token list
head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n' > prov/secret
chmod 600 prov/secret
"$muster" jwt token.jwt prov/signer-key.pem --insecure --secret-file prov/secret --default \
  --urls "localhost:$((port + 2))" --ca prov/ca/root.pem --identity 'web*.example.net' > sign.log 2>&1

# Makes a node and starts it: name, address.
node() {
  name=$1
  mkdir -p "$name/tls"
  cp -r "$here/certificates.d" "$here/actions.d" "$here/reload" "$here/haproxy.cfg" token.jwt "$name"
  for f in "$name"/certificates.d/*.yaml; do echo "renew: $renew" >> "$f"; done
  sed "s/ADDRESS/$2:$((port + 1))/" "$here/nginx.conf" > "$name/nginx.conf"
  printf '{"networks": {"internal": {"fqdn": "%s.internal.example.net"}}}\n' "${name%%.*}" > "$name/facts.json"
  NAME=$name INTERNAL=${name%%.*}.internal.example.net ADDRESS=$2 PORT=$port NGINX_PORT=$((port + 1)) SERVER=$server \
    unshare --mount --pid --fork --kill-child --mount-proc "$here/node.sh" "$work/$name" > "$name.log" 2>&1 &
  nodes="$nodes $!"
}
mkdir -p /etc/muster # each node gets one of its own there
node web1.example.net 127.0.0.1
node web2.example.net 127.0.0.2

# Sends a request to haproxy: node's address, options of curl.
site() {
  address=$1
  shift
  curl -sS --max-time 5 --cacert web1.example.net/tls/ca.pem --connect-to "www.example.net:443:$address:$port" "$@" \
    https://www.example.net/
}
client=web1.example.net/tls/client.pem
await site 127.0.0.1 --fail --cert "$client"
await site 127.0.0.2 --fail --cert "$client"

step "haproxy admits only clients with a certificate"
site 127.0.0.1 --cert "$client"
if site 127.0.0.1 2>&1; then echo "admitted without a certificate" >&2; exit 1; fi

step "A node that asks for the name of another node is refused, and the reason is shown"
cat > web2.example.net/certificates.d/stolen.yaml << 'EOF'
dns_names: [web1.internal.example.net]
network: internal
files:
  combined: {path: /etc/muster/tls/stolen.pem}
EOF
await sh -c "\"$muster\" certificate show web2.example.net stolen | grep -q 'may not have the name'"
"$muster" certificate show web2.example.net stolen
rm web2.example.net/certificates.d/stolen.yaml

# Sends up to 100 requests a second to a server until the end, each over a new connection, and notes the client's
# certificates. It prints failures and counts, and fails if a request failed or the server had too few certificates:
# address, name.
load() {
  copy=client-${1%:*}-${1#*:}.pem # curl takes what follows a colon as a passphrase
  while [ "$(date +%s)" -lt "$end" ] && [ -d "$work" ]; do
    cp "$client" "$copy" # curl reads key and certificate one after the other: a renewal may come between
    openssl x509 -in "$client" -noout -serial >> client.serials
    # Its status is the last request's; each is printed.
    curl -sS --max-time 10 --rate 100/s --no-sessionid --header 'Connection: close' \
      --cacert web1.example.net/tls/ca.pem --cert "$copy" --connect-to "$2:443:$1" --output /dev/null \
      --write-out '\nrequest %{exitcode} %{http_code}\n%{certs}\n' "https://$2/[1-100]" || true
  done | awk -v server="$1" -v fewest="$fewest" '
    /^request / { all++; own = 1; if ($2 != 0 || $3 != 200) { failed++; print server ": " $0 } }
    /^Serial Number:/ && own { own = 0; if (!seen[$0]++) certificates++ } # further ones are of the chain
    END {
      printf "%s: %d requests, %d failed, %d certificates\n", server, all, failed, certificates
      exit !(all > 0 && failed == 0 && certificates >= fewest)
    }'
}

step "Certificates of $life are renewed under load for $seconds seconds"
end=$(($(date +%s) + seconds))
loads=''
for target in "127.0.0.1:$port www" "127.0.0.2:$port www" "127.0.0.1:$((port + 1)) web1.internal" \
  "127.0.0.2:$((port + 1)) web2.internal"; do
  load "${target% *}" "${target#* }.example.net" &
  loads="$loads $!"
done
ok=1
for pid in $loads; do wait "$pid" || ok=0; done
certificates=$(sort -u client.serials | wc -l)
echo "client: $certificates certificates"
if [ "$ok" -eq 0 ] || [ "$certificates" -lt "$fewest" ]; then
  echo "want no failure, and $fewest certificates of each" >&2
  exit 1
fi
"$muster" certificate list
"$muster" events --type certificate.renewed | tail -n 5
