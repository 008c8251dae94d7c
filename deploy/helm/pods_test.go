package helm_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// settings of all pods that run. A local volume is changed to the group of the pod, as those of storage systems are.
const settings = `trustDomain: example.net
names: [nats.example.net]
image: {tag: test, pullPolicy: Never}
storage: {size: 1Gi, class: test}
resources: {requests: {cpu: 50m, memory: 128Mi}, limits: {memory: 512Mi}}
`

// TestPodsRun follows the chart's README, one shape after the other: both are in the namespace muster.
func TestPodsRun(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.run(`ctr -n k8s.io images import "$(dirname "$(command -v kubelet)")/pause.tar"
tar -C "$DIST/image" -c . | ctr -n k8s.io images import --base-name docker.io/library/muster -
ctr -n k8s.io images tag $(ctr -n k8s.io images list -q | grep library/muster:) docker.io/library/muster:test`)
	s.await("kubectl wait node/node1 --for=condition=Ready --timeout=1s")
	t.Run("one provisioner", func(t *testing.T) { newShell(t).embedded() })
	t.Run("two provisioners at three brokers", func(t *testing.T) { newShell(t).highlyAvailable() })
}

// install installs the chart with the settings and some more.
func (s *shell) install(more string) {
	s.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, "settings.yaml"), []byte(settings), 0o600); err != nil {
		s.Fatal(err)
	}
	s.namespace("muster")
	s.run(`helm install muster "$CHART" -n muster -f settings.yaml ` + more)
}

func (s *shell) uninstall() {
	s.Helper()
	s.run("helm uninstall muster -n muster && kubectl delete namespace muster --timeout=2m")
}

func (s *shell) embedded() {
	s.Helper()
	s.run(readme(s.T, "One provisioner"))
	s.install("--wait --timeout 2m")

	s.Log("helm test enrolls a node; its pod learns the address of the Service, since there is no DNS")
	s.run(`ip=$(kubectl get pod -n muster muster-0 -o jsonpath='{.status.podIP}')
helm upgrade muster "$CHART" -n muster --reuse-values --set-json "merge.test.spec.hostAliases=[
    {\"ip\": \"$ip\", \"hostnames\": [\"muster.muster.svc\", \"nats.example.net\"]}]"`)
	if out := s.run(readme(s.T, "Test")); !strings.Contains(out, "Succeeded") {
		s.Errorf("helm test: %s", out)
	}

	s.Log("a changed ConfigMap is used without a restart")
	s.run(`echo '# changed' >>prov/policy/default.rego
kubectl create configmap muster-policy -n muster --from-file=prov/policy --dry-run=client -o yaml |
    kubectl replace -f -`)
	s.await("kubectl logs -n muster muster-0 | grep 'policy reloaded'")

	s.Log("a new pod has the records of the former one, which ended in order")
	s.run(`kubectl logs -n muster muster-0 -f >log & kubectl delete pod -n muster muster-0 && wait
grep 'provisioner stopped' log`)
	s.await("kubectl wait -n muster pod/muster-0 --for=condition=Ready --timeout=1s")
	s.run("kubectl exec -n muster muster-0 -- muster node list --state provisioned -o name | grep .test.example.net")
	s.uninstall()
}

// highlyAvailable has brokers that run beside the pods: those of the chart wait for a volume.
func (s *shell) highlyAvailable() {
	s.Helper()
	s.run(readme(s.T, "Highly available"))
	// A broker takes all addresses of this machine with its own port of routes for itself.
	s.run(`for i in 0 1 2; do
    sed -E "s,/etc/nats,$PWD/broker-$i,; s,/var/lib/nats,$PWD/store-$i,; s,(broker-([0-9])[^:]*):6222,\1:622\2,g
        s,0\.0\.0\.0:6222,10.99.0.1$i:622$i,; s,0\.0\.0\.0,10.99.0.1$i," broker-$i/nats-server.conf >broker-$i/here.conf
    muster broker run broker-$i/here.conf >/run/broker-$i.log 2>&1 </dev/null &
done`)
	s.install(`--set mode=cluster,replicas=2,brokers.storage.class=none \
    --set-json 'merge.provisioner.spec.template.spec.hostAliases=[
    {"ip": "10.99.0.10", "hostnames": ["muster-broker-0.muster-broker"]},
    {"ip": "10.99.0.11", "hostnames": ["muster-broker-1.muster-broker"]},
    {"ip": "10.99.0.12", "hostnames": ["muster-broker-2.muster-broker"]}]'`)
	s.await("kubectl wait -n muster pod/muster-0 pod/muster-1 --for=condition=Ready --timeout=1s")

	s.run(`muster jwt provisioning.jwt safe/signer-key.pem --insecure --token secret --default \
    --urls nats.example.net:4222 --ca prov/ca/root.pem --seal prov/seal.pub --identity web1.example.net
muster-server run --token-file=provisioning.jwt --identity=web1.example.net --ssl-dir=node/ssl \
    --config=node/server.conf >/run/node.log 2>&1 </dev/null &`)
	s.await("kubectl exec -n muster muster-0 -- muster node show web1.example.net | grep provisioned")
	s.run("kubectl delete pod -n muster muster-0")
	s.run("kubectl exec -n muster muster-1 -- muster node show web1.example.net | grep provisioned")
	s.await("kubectl wait -n muster pod/muster-0 --for=condition=Ready --timeout=1s")
	s.uninstall()
}
