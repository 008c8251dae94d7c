package helm_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"muster/internal/testproc"
)

// TestMain runs the tests on a Kubernetes that ends with them, if they are to install.
func TestMain(m *testing.M) {
	const inside = "MUSTER_KUBERNETES"
	if os.Getenv("MUSTER_CI_INSTALL") == "" || os.Getenv(inside) != "" {
		os.Exit(m.Run()) //nolint:forbidigo // what TestMain is for
	}
	cmd := exec.Command("unshare", append([]string{"--net", "--mount", "--propagation=slave", "--pid", "--fork",
		"--kill-child", "--mount-proc", "testdata/machine.sh", os.Args[0]}, os.Args[1:]...)...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := errors.Join(testproc.Start(cmd), cmd.Wait()); err != nil {
		os.Exit(1) //nolint:forbidigo // what TestMain is for
	}
}

// A shell runs commands in a directory of its own.
type shell struct {
	*testing.T
	dir string
	env []string
}

func newShell(t *testing.T, env ...string) *shell {
	t.Helper()
	testproc.NeedsInstall(t)
	s := &shell{T: t, dir: t.TempDir()}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	dist := filepath.Join(here, "../../dist")
	s.env = append(append(os.Environ(), env...), "CHART="+filepath.Join(here, chart), "DIST="+dist,
		"PATH="+dist+"/bin/linux-"+runtime.GOARCH+":"+os.Getenv("PATH"),
		"HELM_CACHE_HOME="+s.dir, "HELM_CONFIG_HOME="+s.dir, "HELM_DATA_HOME="+s.dir)
	return s
}

// try runs a script of bash and returns its whole output.
func (s *shell) try(script string) (string, error) {
	cmd := exec.CommandContext(s.Context(), "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir, cmd.Env, cmd.WaitDelay = s.dir, s.env, time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// run is try for scripts that succeed.
func (s *shell) run(script string) string {
	s.Helper()
	out, err := s.try(script)
	if err != nil {
		logs, _ := s.try("kubectl get pods,events -A; tail -n 20 /run/*.log /var/log/pods/*/*/*.log")
		s.Fatalf("%s: %v:\n%s\n%s", script, err, out, logs)
	}
	return out
}

// await repeats a command for up to two minutes, until it succeeds.
func (s *shell) await(command string) {
	s.Helper()
	s.run(`until out=$(` + command + ` 2>&1); do ((SECONDS < 120)) || { echo "$out"; exit 1; }; sleep 0.2; done`)
}

// namespace refuses pods beyond PodSecurity restricted, and warns of what would make such.
func (s *shell) namespace(name string) {
	s.Helper()
	s.run("kubectl create namespace " + name + " --dry-run=client -o yaml | kubectl apply -f -")
	s.run("kubectl label namespace " + name +
		" pod-security.kubernetes.io/enforce=restricted pod-security.kubernetes.io/warn=restricted")
	s.await("kubectl get -n " + name + " serviceaccount default")
}

// readme returns the commands below a heading of the chart's README.
func readme(t *testing.T, heading string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chart, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(text), "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("README.md has no heading %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var commands strings.Builder
	for i, part := range strings.Split(section, "```") {
		if code, ok := strings.CutPrefix(part, "sh\n"); ok && i%2 == 1 {
			commands.WriteString(code)
		}
	}
	return commands.String()
}

// TestChartInstalls installs and upgrades each shape without pods: their volumes do not exist.
func TestChartInstalls(t *testing.T) {
	t.Parallel()
	for _, helm := range []string{"helm", "helm3"} {
		for example, pods := range map[string]string{"embedded": "1", "cluster": "5", "external": "2", "site": "3"} {
			t.Run(helm+" "+example, func(t *testing.T) {
				t.Parallel()
				s := newShell(t, "HELM="+helm, "EXAMPLE="+example, "PODS="+pods, "N="+helm+"-"+example)
				s.installs()
			})
		}
	}
}

func (s *shell) installs() {
	s.Helper()
	s.namespace("$N")
	out := s.run(`values="$CHART/ci/$EXAMPLE.yaml"
$HELM lint --strict "$CHART" -f "$values"
$HELM template muster "$CHART" -n $N -f "$values" --kube-version 1.29 | kubectl apply -n $N --dry-run=server -f -
$HELM install muster "$CHART" -n $N -f "$values"`)
	s.await("test $(kubectl get pods -n $N -o name | wc -l) = $PODS")
	out += s.run(`$HELM upgrade muster "$CHART" -n $N -f "$CHART/ci/$EXAMPLE.yaml" --set config.quotas.per_token=7
test "$(kubectl get -n $N statefulset muster -o jsonpath='{.metadata.generation}')" = 2
kubectl get -n $N configmap muster-config -o yaml | grep -q 'per_token: 7'`)
	if strings.Contains(out, "would violate PodSecurity") {
		s.Error(out)
	}
	refused, err := s.try(`$HELM upgrade muster "$CHART" -n $N -f "$CHART/ci/$EXAMPLE.yaml" --set storage.siz=1Gi`)
	if err == nil || !strings.Contains(refused, "siz") {
		s.Errorf("a misspelled value: %v: %s", err, refused)
	}
	s.run("$HELM uninstall muster -n $N")
}

// TestAgentsWantPrivileges also proves that a namespace warns.
func TestAgentsWantPrivileges(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.namespace("agents")
	out := s.run(`helm lint --strict "$CHART" -f "$CHART/ci/agents.yaml"
helm template muster "$CHART" -n agents -f "$CHART/ci/agents.yaml" | kubectl apply -n agents --dry-run=server -f -`)
	if !strings.Contains(out, "would violate PodSecurity") {
		t.Error(out)
	}
}
