#!/bin/sh
# Starts muster on this machine, and makes each call of Puppet's and Foreman's protocols with curl and openssl.
# MUSTER names the program.
set -eu

muster=$(realpath "${MUSTER:-bin/muster}")
work=$(mktemp -d)
cd "$work"
pid=
finish() {
  [ -z "$pid" ] || { kill "$pid"; wait "$pid" || true; }
  if [ -z "${KEEP:-}" ]; then rm -rf "$work"; else echo "the files are in $work"; fi
}
trap finish EXIT
trap 'exit 1' INT TERM

port=${PORT:-18340}
api=https://localhost:$((port + 1))
agents=https://localhost:$port
export MUSTER_CONFIG="$work/prov/provisioner.yaml"

# An installation with a gateway, an operator, a Foreman and a token.
"$muster" provisioner init prov --host localhost --trust-domain example.net --trust-first-use \
  --listen "127.0.0.1:$((port + 2))" > init.log 2>&1
"$muster" ca puppet > ca.log 2>&1
sed "s|^puppet:|puppet:\\
  listen: 127.0.0.1:$port\\
  names: [localhost]\\
  bundle: puppet-ca/bundle.pem\\
  key: puppet-ca/key.pem\\
  root_crl: puppet-ca/root-crl.pem|
s|^api:|api:\\
  listen: 127.0.0.1:$((port + 1))\\
  names: [localhost]|" prov/provisioner.yaml > provisioner.yaml
mv provisioner.yaml prov/provisioner.yaml
cat > prov/policy/puppet.rego <<'EOF'
package muster.enroll

configuration := {"identity": input.identity} if input.source.protocol == "puppet"

deny contains "this machine is for spare parts" if input.identity == "spare.example.net"
EOF
"$muster" provisioner run > prov.log 2>&1 &
pid=$!
# Waits until a command succeeds.
await() {
  left=240
  until "$@" > /dev/null 2>&1; do
    left=$((left - 1))
    [ "$left" -gt 0 ] || { cat prov.log ca.log >&2; exit 1; }
    sleep 0.25
  done
}
await curl -sf --cacert prov/puppet-ca/bundle.pem "$agents/status/v1/simple"
echo "the token's secret" > prov/secret
chmod 600 prov/secret
"$muster" jwt token.jwt prov/signer-key.pem --insecure --secret-file prov/secret --default --urls localhost:4222 2> jwt.log
"$muster" operator add anna --role operator --certificate > operator.log 2>&1
"$muster" operator add foreman --role foreman --names 'build*.example.net' --certificate >> operator.log 2>&1

failed=0
# Makes a call: its description, the wanted status, a regular expression for the body, the arguments of curl. The rest
# of the answer is in headers and body.
call() {
  what=$1 want=$2 text=$3
  shift 3
  status=$(curl -s --cacert roots.pem -D headers -o body -w '%{http_code}' "$@") || status=none
  [ -s body ] || : > body
  if [ "$status" = "$want" ] && { [ -z "$text" ] || grep -Eqz -- "$text" body; }; then
    printf '%s %s\n' "$status" "$what"
  else
    printf 'WRONG %s: status %s, want %s and %s: %s\n' "$what" "$status" "$want" "$text" "$(head -c 400 body)"
    failed=1
  fi
}
# Makes a call with a certificate.
with() {
  certificate=$1 key=$2 what=$3 want=$4 text=$5
  shift 5
  call "$what" "$want" "$text" --cert "$certificate" --key "$key" "$@"
}
node() { with web1.example.net.pem web1.example.net.key "$@"; }
anna() { with anna.pem anna.pem "$@"; }
foreman() { with foreman.pem foreman.pem "$@"; }
# Checks something else.
check() {
  what=$1
  shift
  if "$@" > check.log 2>&1; then echo "ok  $what"; else echo "WRONG $what: $(cat check.log)"; failed=1; fi
}
type_is() { grep -qi "^content-type: *$1" headers; }
empty() { [ ! -s body ] && grep -qi '^content-length: 0' headers; }
# Makes a key and a request: name, token or nothing, subject if another.
request() {
  printf '[req]\nprompt=no\nstring_mask=utf8only\ndistinguished_name=dn\nattributes=at\n[dn]\nCN=%s\n[at]\n%s\n' "${3:-$1}" \
    "${2:+1.2.840.113549.1.9.7=$2}" > req.conf
  [ -f "$1.key" ] || openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1.key" 2> /dev/null
  openssl req -new -key "$1.key" -config req.conf -out "$1.csr"
}
cp prov/puppet-ca/bundle.pem roots.pem
ca=$agents/puppet-ca/v1
e="environment=production"

# The authority, without a certificate.
call "the bundle" 200 'BEGIN CERTIFICATE' "$ca/certificate/ca?$e"
check "the bundle's bytes" cmp body prov/puppet-ca/bundle.pem
check "the bundle is text" type_is text/plain
call "the lists" 200 'BEGIN X509 CRL' "$ca/certificate_revocation_list/ca?$e"
cp body crl.pem
check "a list of each authority" test "$(grep -c 'BEGIN X509 CRL' crl.pem)" = 2
call "unchanged lists" 304 '' -H "If-Modified-Since: $(date -u -d '+2 days' '+%a, %d %b %Y %H:%M:%S GMT')" \
  "$ca/certificate_revocation_list/ca"
for list in 1 2; do
  awk -v n="$list" '/BEGIN/ {i++} i == n' crl.pem > one.pem
  ends=$(date -d "$(openssl crl -in one.pem -noout -nextupdate | cut -d= -f2)" +%s)
  check "list $list is good for years" test "$ends" -gt "$(date -d '+4 years' +%s)"
done
call "a certificate that does not exist" 404 '^Could not find certificate web9.example.net' "$ca/certificate/web9.example.net"

request web1.example.net "$(cat token.jwt)"
call "a request with a token" 200 '' -X PUT -H 'Content-Type: text/plain' --data-binary @web1.example.net.csr \
  "$ca/certificate_request/web1.example.net?$e"
check "its answer is empty" empty
call "the certificate" 200 'BEGIN CERTIFICATE' "$ca/certificate/web1.example.net?$e"
cp body web1.example.net.pem
check "its chain, with the lists" openssl verify -crl_check_all -CAfile roots.pem -CRLfile crl.pem web1.example.net.pem
call "the request again" 200 '' -X PUT -H 'Content-Type: text/plain' --data-binary @web1.example.net.csr \
  "$ca/certificate_request/web1.example.net?$e"
call "the certificate again" 200 '' "$ca/certificate/web1.example.net"
check "is the same" cmp body web1.example.net.pem
call "requests are not served" 404 '' "$ca/certificate_request/web1.example.net"
call "no request" 400 '.' -X PUT --data-binary nonsense "$ca/certificate_request/web1.example.net"
request web2.example.net "$(cat token.jwt)"
call "a request for another name" 400 '.' -X PUT --data-binary @web2.example.net.csr "$ca/certificate_request/web1.example.net"
call "a name with .." 404 '' --path-as-is "$ca/certificate/../../../etc/passwd"
call "HEAD" 403 '' -I "$ca/certificate/ca"
request spare.example.net "$(cat token.jwt)"
call "a refused request" 200 '' -X PUT --data-binary @spare.example.net.csr "$ca/certificate_request/spare.example.net"
call "its reason, to the token's holder" 404 'denied' "$ca/certificate/spare.example.net"
request other.example.net
call "a request without a token" 200 '' -X PUT --data-binary @other.example.net.csr "$ca/certificate_request/other.example.net"
call "it waits" 404 '^Could not find certificate other.example.net' "$ca/certificate/other.example.net"
request web3.example.net "$(cat token.jwt)"
call "a request of web3" 200 '' -X PUT --data-binary @web3.example.net.csr "$ca/certificate_request/web3.example.net"
call "the certificate of web3" 200 '' "$ca/certificate/web3.example.net"
rm web3.example.net.key
request web3.example.net
call "a request with another key" 200 '' -X PUT --data-binary @web3.example.net.csr "$ca/certificate_request/web3.example.net"
call "does not get the certificate" 404 '^Could not find certificate' "$ca/certificate/web3.example.net"

# The node and the operator.
node "a node's own certificate" 200 'BEGIN CERTIFICATE' "$ca/certificate/web1.example.net"
node "a renewal" 200 'BEGIN CERTIFICATE' -X POST -H 'Content-Type: text/plain' -d '' "$ca/certificate_renewal"
openssl x509 -in web1.example.net.pem -noout -pubkey > former.pub
check "of the same key" sh -c 'openssl x509 -in body -noout -pubkey | cmp - former.pub'
call "no renewal without a certificate" 403 '' -X POST -d '' "$ca/certificate_renewal"
node "no statuses for a node" 403 '' "$ca/certificate_statuses/any_key"
call "no statuses for a stranger" 403 '' "$ca/certificate_statuses/any_key"
anna "all statuses" 200 '"web1.example.net"' "$ca/certificate_statuses/any_key"
anna "waiting statuses" 200 '"other.example.net"' "$ca/certificate_statuses/any_key?state=requested"
check "lists no signed ones" sh -c '! grep -q web1.example.net body'
anna "a status" 200 '"state": *"signed"' "$ca/certificate_status/web1.example.net"
anna "no status" 404 '^Resource not found.' "$ca/certificate_status/web9.example.net"
state() { anna "$1" "$3" "$4" -X PUT -H 'Content-Type: application/json' -d "{\"desired_state\":\"$5\"}" "$ca/certificate_status/$2"; }
state "a signature" other.example.net 204 '' signed
call "the request again" 200 '' -X PUT --data-binary @other.example.net.csr "$ca/certificate_request/other.example.net"
call "gives the certificate" 200 'BEGIN CERTIFICATE' "$ca/certificate/other.example.net"
state "no request to sign" web1.example.net 409 'Cannot sign certificate for host web1.example.net without a certificate request' signed
state "no such name" web9.example.net 404 'Invalid certificate subject.' revoked
state "no such state" web1.example.net 400 'State nice invalid; Must specify desired state of .signed. or .revoked. for host web1.example.net.' nice
state "a revocation" other.example.net 204 '' revoked
anna "shown as revoked" 200 '"state": *"revoked"' "$ca/certificate_status/other.example.net"
anna "a clean name" 204 '' -X DELETE "$ca/certificate_status/other.example.net"
anna "cleaned twice" 404 '' -X DELETE "$ca/certificate_status/web9.example.net"
for name in a b c; do
  request $name.example.net
  call "request $name" 200 '' -X PUT --data-binary @$name.example.net.csr "$ca/certificate_request/$name.example.net"
done
anna "sign some" 200 '"signed": *\["a.example.net"\]' -X POST \
  -H 'Content-Type: application/json' -d '{"certnames":["a.example.net","web9.example.net"]}' "$ca/sign"
anna "sign all" 200 '"b.example.net"' -X POST -H 'Content-Type: application/json' -d '{}' "$ca/sign/all"
anna "clean" 200 'web9.example.net' -X PUT -H 'Content-Type: application/json' \
  -d '{"certnames":["a.example.net","web9.example.net"],"async":false}' "$ca/clean"
call "status" 200 '^running' "$agents/status/v1/simple"
call "status of the server" 200 '^running' "$agents/status/v1/simple/server"
call "status of services" 200 '"ca"' "$agents/status/v1/services"
anna "all else" 403 '' "$ca/anything"

# A run.
v3=$agents/puppet/v3
call "no run for a stranger" 403 'Forbidden' "$v3/node/web1.example.net?$e"
node "no run for another name" 403 'Forbidden' "$v3/node/web2.example.net?$e"
node "no environment" 400 'environment' "$v3/node/web1.example.net"
node "the node" 200 '"environment": *"production"' "$v3/node/web1.example.net?$e"
for directory in plugins pluginfacts; do
  node "$directory" 200 '"relative_path": *"\."' \
    "$v3/file_metadatas/$directory?recurse=true&links=follow&checksum_type=sha256&$e"
done
facts='%257B%2522name%2522%253A%2522web1.example.net%2522%252C%2522values%2522%253A%257B%2522os%2522%253A%2522Debian%2522%257D%257D'
catalog() {
  node "$1" "$2" "$3" -H "Accept: $4" -d "facts_format=application/json&facts=$facts&$e&check_environment=true" \
    "$v3/catalog/web1.example.net?$e"
}
catalog "the catalog" 200 'identity = web1.example.net' application/json
check "as JSON" type_is application/json
catalog "the catalog with rich data" 200 'web1.example.net' 'application/vnd.puppet.rich+json, application/json'
catalog "no catalog as text" 406 '' text/plain
node "the facts" 200 '' -X PUT -H 'Content-Type: application/json' -d '{"name":"web1.example.net","values":{"a":1}}' \
  "$v3/facts/web1.example.net?$e"
node "a report" 200 '^\[' -X PUT -H 'Content-Type: application/json' -d '{"host":"web1.example.net","report_format":12,
  "time":"2026-11-30T08:48:34.614785704+00:00","status":"unchanged","puppet_version":"8.11.0","environment":"production",
  "logs":[],"metrics":{},"resource_statuses":{}}' "$v3/report/web1.example.net?$e"
check "its answer is JSON" type_is application/json
node "no other file" 404 '' "$v3/file_content/modules/a/b?$e"
node "no file outside" 404 '' --path-as-is "$v3/file_content/plugins/../../../../etc/passwd?$e"
node "no v4" 403 '' -X POST -d '{}' "$agents/puppet/v4/catalog"

# A revoked node.
"$muster" node revoke web1.example.net --why 'a call' --yes > revoke.log 2>&1
node "a revoked node" 403 '' "$v3/node/web1.example.net?$e"
revoked() { curl -s --cacert roots.pem "$ca/certificate_revocation_list/ca" -o crl.pem &&
  openssl verify -crl_check_all -CAfile roots.pem -CRLfile crl.pem web1.example.net.pem 2>&1 | grep -q revoked; }
await revoked
check "is on the list" revoked

# Foreman.
cat prov/ca/root.pem >> roots.pem
call "version" 200 '"version"' "$api/version"
call "features" 200 '"puppetca"' "$api/features"
call "no features of version 2 for a stranger" 403 '' "$api/v2/features"
foreman "features of version 2" 200 '"puppetca":.*"state": *"running"' "$api/v2/features"
check "name the gateway" grep -q "$agents" body
call "no list for a stranger" 403 '' "$api/puppet/ca"
foreman "certificates" 200 '^\{' "$api/puppet/ca"
foreman "cleaning an unknown name" 200 '' -X DELETE "$api/puppet/ca/build1.example.net"
foreman "a token" 200 '"generated_token"' -X POST -H 'Content-Length: 0' "$api/puppet/ca/autosign/build1.example.net"
one=$(sed 's/.*"generated_token": *"\([^"]*\)".*/\1/' body)
foreman "the list of tokens" 200 'build1.example.net' "$api/puppet/ca/autosign"
foreman "no token for another name" 403 '' -X POST -d '' "$api/puppet/ca/autosign/web7.example.net"
request build2.example.net "$one"
foreman "the token of another host" 404 '' --data-binary @build2.example.net.csr "$api/puppet/ca/validate"
request build1.example.net "$one"
foreman "the token of the host" 200 '' --data-binary @build1.example.net.csr "$api/puppet/ca/validate"
foreman "again" 200 '' --data-binary @build1.example.net.csr "$api/puppet/ca/validate"
foreman "no token" 404 '' --data-binary @other.example.net.csr "$api/puppet/ca/validate"
foreman "a new token for the host" 200 '"generated_token"' -X POST -d token_ttl=5 "$api/puppet/ca/autosign/build1.example.net"
one=$(sed 's/.*"generated_token": *"\([^"]*\)".*/\1/' body)
request build1.example.net "$one"
call "the host asks" 200 '' -X PUT --data-binary @build1.example.net.csr "$ca/certificate_request/build1.example.net"
call "and gets a certificate" 200 'BEGIN CERTIFICATE' "$ca/certificate/build1.example.net"
foreman "the token is spent" 200 '^\[\]' "$api/puppet/ca/autosign"
foreman "no token to delete" 200 '' -X DELETE "$api/puppet/ca/autosign/build1.example.net"
foreman "the host in the list" 200 '"build1.example.net":.*"state": *"valid"' "$api/puppet/ca"
foreman "the host is built again" 200 '' -X DELETE "$api/puppet/ca/build1.example.net"
rm build1.example.net.key
request build1.example.net
call "a request without a token" 200 '' -X PUT --data-binary @build1.example.net.csr "$ca/certificate_request/build1.example.net"
call "waits" 404 '' "$ca/certificate/build1.example.net"
foreman "a host is signed by hand" 200 '' -X POST -H 'Content-Length: 0' "$api/puppet/ca/build1.example.net"
foreman "no host to sign" 406 'Failed to sign certificate' -X POST -H 'Content-Length: 0' "$api/puppet/ca/build9.example.net"
foreman "all else" 404 '' "$api/puppet/nothing"
[ "$failed" = 0 ]
