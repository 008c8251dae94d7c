#!/usr/bin/env bash
# Runs a command on a Kubernetes of one machine: machine.sh COMMAND…, as the first process of namespaces of its own
# for processes, mounts and networks. All ends with the command. There is neither DNS nor a proxy for Services.
set -euo pipefail
testdata=$(realpath "$(dirname "$0")")
address=10.99.0.2

# Nothing is written to the machine. Names are those of brokers that tests run.
mount --make-rshared /
for dir in /run /var/lib /var/log; do mount -t tmpfs none $dir; done
cp /etc/hosts /run/hosts
for i in 0 1 2; do echo "10.99.0.1$i muster-broker-$i.muster-broker nats.example.net" >>/run/hosts; done
mount --bind /run/hosts /etc/hosts

# The API server wants a default route.
ip link set lo up
ip link add veth0 type veth peer name veth1
for ip in "$address" 10.99.0.1{0,1,2}; do ip address add "$ip/24" dev veth0; done
ip link set veth0 up
ip link set veth1 up
ip route add default via 10.99.0.1

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=kubernetes -keyout /run/api.key \
    -out /run/api.crt -addext subjectAltName=DNS:localhost,IP:127.0.0.1 2>/dev/null
echo 'test,admin,admin,system:masters' >/run/tokens.csv
cat >/run/kubeconfig <<'END'
apiVersion: v1
kind: Config
current-context: test
clusters: [{name: test, cluster: {server: "https://127.0.0.1:6443", certificate-authority: /run/api.crt}}]
users: [{name: test, user: {token: test}}]
contexts: [{name: test, context: {cluster: test, user: test}}]
END
export KUBECONFIG=/run/kubeconfig

mkdir /run/cni
cp "$testdata/network.conflist" /run/cni
run() { "$@" >"/run/$1.log" 2>&1 </dev/null & }
run etcd --data-dir=/var/lib/etcd --unsafe-no-fsync --log-level=error
run containerd --config="$testdata/containerd.toml"
run kube-apiserver --etcd-servers=http://127.0.0.1:2379 --bind-address=127.0.0.1 --tls-cert-file=/run/api.crt \
    --tls-private-key-file=/run/api.key --client-ca-file=/run/api.crt --token-auth-file=/run/tokens.csv \
    --service-account-issuer=https://kubernetes.default.svc --service-account-key-file=/run/api.crt \
    --service-account-signing-key-file=/run/api.key --service-cluster-ip-range=10.0.0.0/24 --allow-privileged \
    --authorization-mode=Node,RBAC --endpoint-reconciler-type=none --enable-admission-plugins=NodeRestriction \
    --kubelet-preferred-address-types=InternalIP
for _ in {1..300}; do
    kubectl get --raw /readyz >/dev/null 2>&1 && break
    sleep 0.2
done
run kube-controller-manager --kubeconfig=$KUBECONFIG --root-ca-file=/run/api.crt --secure-port=0 --leader-elect=false \
    --service-account-private-key-file=/run/api.key --use-service-account-credentials
run kube-scheduler --kubeconfig=$KUBECONFIG --secure-port=0 --leader-elect=false
run kubelet --config="$testdata/kubelet.yaml" --kubeconfig=$KUBECONFIG --hostname-override=node1 --node-ip="$address"

# Volumes of class test.
kubectl apply -f "$testdata/crds.yaml" >/dev/null
for i in 1 2 3 4; do
    mkdir "/var/lib/volume$i"
    sed "s/NUMBER/$i/" "$testdata/volume.yaml" | kubectl apply -f - >/dev/null
done
exec "$@"
