#!/bin/sh
# Runs a puppetserver of Debian without its authority beside muster, as docs/puppet.md says, and agents that get
# catalogs from it and certificates from muster. MUSTER names the program, PUPPET8 the source of an agent 8. It needs
# root, puppetserver and puppet-agent.
set -eu

# Names of this machine only for what runs here.
if [ -z "${INSIDE:-}" ]; then
  hosts=$(mktemp)
  { cat /etc/hosts; echo 127.0.0.1 puppet.example.net compile1.example.net; } > "$hosts"
  chmod 644 "$hosts"
  # shellcheck disable=SC2016
  INSIDE=1 HOSTS=$hosts exec unshare --mount sh -c 'mount --bind "$HOSTS" /etc/hosts && rm "$HOSTS" && exec "$0"' "$0"
fi

muster=$(realpath "${MUSTER:-bin/muster}")
work=$(mktemp -d)
chmod 755 "$work"
cd "$work"
port=${PORT:-18440}
pids=
finish() {
  for pid in $pids; do kill "$pid" 2> /dev/null || true; done
  for pid in $pids; do wait "$pid" || true; done
  if [ -z "${KEEP:-}" ]; then rm -rf "$work"; else echo "the files are in $work"; fi
}
trap finish EXIT
trap 'exit 1' INT TERM
# Waits until a command succeeds.
await() {
  left=1200
  until "$@" > await.log 2>&1; do
    left=$((left - 1))
    [ "$left" -gt 0 ] || { cat await.log; tail -n 30 ./*.log ./*/*.log; exit 1; } >&2
    sleep 0.25
  done
}

# muster, the authority.
export MUSTER_CONFIG="$work/prov/provisioner.yaml"
"$muster" provisioner init prov --host localhost --trust-domain example.net --listen "127.0.0.1:$((port + 2))" > init.log 2>&1
"$muster" ca puppet > ca.log 2>&1
sed "s|^puppet:|puppet:\\
  listen: 127.0.0.1:$port\\
  names: [puppet.example.net]\\
  bundle: puppet-ca/bundle.pem\\
  key: puppet-ca/key.pem\\
  root_crl: puppet-ca/root-crl.pem|" prov/provisioner.yaml > provisioner.yaml
mv provisioner.yaml prov/provisioner.yaml
"$muster" provisioner run > prov.log 2>&1 &
pids=$!
await "$muster" token list
"$muster" allow add '*.example.net' --without-token --why 'a test' > allow.log 2>&1

# The compile server: its files in a directory of its own, as they are in /etc/puppet.
at=$work/server
mkdir -p "$at/puppet/code/environments/production/manifests" "$at/conf.d" "$at/services.d" "$at/var" "$at/run" "$at/log"
cp /etc/puppet/puppetserver/conf.d/*.conf "$at/conf.d"
cp /etc/puppet/puppetserver/services.d/*.cfg "$at/services.d"
cp /etc/puppet/puppetserver/*.xml "$at"
sed -i "s|/etc/puppet/code|$at/puppet/code|; s|server-conf-dir: /etc/puppet|server-conf-dir: $at/puppet|
s|/var/lib/puppetserver\$|$at/var|; s|/run/puppetserver|$at/run|; s|/var/log/puppetserver|$at/log|
s|/etc/puppet/puppetserver|$at|; s|0.0.0.0|127.0.0.1|; s|8140|$((port + 1))|" "$at"/conf.d/*.conf
sed -i "s|/var/log/puppetserver|$at/log|" "$at"/*.xml
sed -i 's|^\(puppetlabs.services.ca.certificate-authority-service\)|#\1|
s|^#\(puppetlabs.services.ca.certificate-authority-disabled-service\)|\1|' "$at/services.d/ca.cfg"
cat > "$at/puppet/puppet.conf" << EOF
[main]
certname = compile1.example.net
ca_server = puppet.example.net
ca_port = $port
ssldir = $at/ssl
logdir = $at/log
rundir = $at/run
publicdir = $at/public
[server]
vardir = $at/var
ca = false
localcacert = $at/root.pem
EOF
# shellcheck disable=SC2016
echo 'notify { "compiled for ${trusted[certname]}": }' > "$at/puppet/code/environments/production/manifests/site.pp"
cp prov/ca/root.pem "$at/root.pem"
chmod 644 "$at/root.pem"
chown -R puppet:puppet "$at"
puppet ssl bootstrap --confdir "$at/puppet" --vardir "$at/var" --color false
chown -R puppet:puppet "$at"
cd "$at"
printf 0 > run/restart
chown puppet run/restart
# shellcheck disable=SC1091
. /etc/default/puppetserver
# shellcheck disable=SC2086
setpriv --reuid puppet --regid puppet --clear-groups env HOME="$at" java $JAVA_ARGS -Djruby.lib=/usr/share/jruby/lib \
  -jar /usr/share/puppetserver/puppetserver.jar --config "$at/conf.d" --bootstrap-config "$at/services.d" \
  --restart-file "$at/run/restart" > "$work/puppetserver.log" 2>&1 &
java=$!
pids="$pids $java"
cd "$work"
serving() { ! kill -0 "$java" || grep '^1' "$at/run/restart"; }
await serving
kill -0 "$java" 2> /dev/null || { tail -n 30 puppetserver.log; exit 1; }

# Agents.
for version in 7 8; do
  name=web$version.example.net
  mkdir -p "$name/conf"
  cat > "$name/conf/puppet.conf" << EOF
[main]
certname = $name
server = compile1.example.net
serverport = $((port + 1))
ca_server = puppet.example.net
ca_port = $port
vardir = $work/$name/var
ssldir = \$vardir/ssl
logdir = \$vardir/log
rundir = \$vardir/run
publicdir = \$vardir/public
EOF
  # shellcheck disable=SC2016
  printf '#!/bin/sh\nexec %s "$@" --confdir %s --color false\n' "$(if [ "$version" = 8 ]; then
    echo ruby -I "$PUPPET8/lib" "$PUPPET8/bin/puppet"
  else
    echo puppet
  fi)" "$work/$name/conf" > "$name/puppet"
  chmod +x "$name/puppet"
  status=0
  "$name/puppet" agent --test > "$name/run.log" 2>&1 || status=$?
  if [ "$status" != 2 ] || ! grep "compiled for $name" "$name/run.log"; then
    cat "$name/run.log" && exit 1
  fi
done

# A revoked agent is refused after the server got the new list, without a reload.
"$muster" node revoke web7.example.net --why 'a test' --yes > revoke.log 2>&1
listed() {
  curl -sf --cacert prov/puppet-ca/bundle.pem -o "$at/ssl/crl.new" \
    "https://puppet.example.net:$port/puppet-ca/v1/certificate_revocation_list/ca" &&
    openssl crl -in "$at/ssl/crl.new" -noout -text | grep -q 'Serial Number:'
}
await listed
mv "$at/ssl/crl.new" "$at/ssl/crl.pem"
refused() { ! web7.example.net/puppet agent --test --certificate_revocation false; }
await refused
tail -n 2 await.log
status=0
web8.example.net/puppet agent --test > web8.example.net/run.log 2>&1 || status=$?
[ "$status" = 2 ] && echo "the other agent still gets catalogs"
