package image_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/internal/testproc"
)

const (
	patience = time.Minute
	grace    = "20" // seconds from SIGTERM to SIGKILL
	made     = "../../dist/image"
	volume   = "/var/lib/muster"
	setupDir = volume + "/provisioner"
)

// TestContainersEnrollAndStartAgain makes a setup in a volume, enrolls a node, stops both containers within their grace
// time, and starts them again.
func TestContainersEnrollAndStartAgain(t *testing.T) {
	t.Parallel()
	testproc.NeedsInstall(t)
	testproc.NeedsRoot(t)
	testproc.Needs(t, "podman", "runc")
	e := newEngine(t)
	initialize := []string{"--rm", "--volume", "provisioner:" + volume, e.image, "provisioner", "init", setupDir,
		"--host", "localhost", "--trust-domain", "example.net", "--trust-first-use", "--if-missing"}
	e.wants(setupDir+" is ready", e.container(initialize...))
	e.wants(setupDir+" has a setup, which was not changed", e.container(initialize...))

	e.container("--detach", "--name", "provisioner", "--volume", "provisioner:"+volume, e.image)
	e.waitFor("provisioner", "provisioner is serving")
	e.podman("exec", "provisioner", "muster", "status", "--check")
	e.podman("exec", "provisioner", "muster", "jwt", volume+"/provisioning.jwt", setupDir+"/signer-key.pem", "--insecure",
		"--token", "secret", "--default", "--urls", "localhost:4222", "--ca", setupDir+"/ca/root.pem",
		"--seal", setupDir+"/seal.pub")
	token := filepath.Join(t.TempDir(), "provisioning.jwt")
	e.podman("cp", "provisioner:"+volume+"/provisioning.jwt", token)
	if err := os.Chown(token, 65532, 65532); err != nil {
		t.Fatal(err)
	}

	node := volume + "/node" // the agent renames directories in it
	startNode := func() {
		e.container("--detach", "--name", "node", "--network", "container:provisioner", "--volume", "node:"+volume,
			"--volume", token+":/etc/provisioning.jwt:ro", "--entrypoint", "/usr/bin/muster-server", e.image, "run",
			"--ssl-dir", node+"/ssl", "--config", node+"/server.conf",
			"--identity", "web1.example.net")
	}
	startNode()
	e.waitFor("node", "node provisioned")
	e.stop("node")
	e.stop("provisioner")

	e.podman("rm", "node") // it would want the network of the stopped container
	e.podman("start", "provisioner")
	startNode()
	e.waitFor("node", "connected to the fleet")
	e.wants("web1.example.net", e.podman("exec", "provisioner", "muster", "node", "list", "-o", "name"))
	if log := e.podman("logs", "node"); strings.Contains(log, "node provisioned") {
		t.Errorf("the node enrolled again: %s", log)
	}
}

// An engine is podman with a storage of its own and one image.
type engine struct {
	*testing.T
	root, run, image string
}

func newEngine(t *testing.T) *engine {
	t.Helper()
	run, err := os.MkdirTemp("", "podman") // podman refuses more than 50 characters
	layout, errPath := filepath.Abs(made)
	if err := errors.Join(err, errPath); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(run) })
	e := &engine{T: t, root: t.TempDir(), run: run}
	var top manifest
	read(t, filepath.Join(made, "index.json"), &top)
	e.image = strings.TrimSpace(e.podman("pull", "--quiet",
		"oci:"+layout+":"+top.Manifests[0].Annotations["org.opencontainers.image.ref.name"]))
	t.Cleanup(func() { // one after the other: the node's container uses the network of the provisioner's
		for _, name := range []string{"node", "provisioner"} {
			e.podman("rm", "--force", "--ignore", "--time", "0", name)
		}
	})
	return e
}

// podman returns both outputs of a command that must not fail.
func (e *engine) podman(args ...string) string {
	e.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(e.Context()), patience)
	defer cancel()
	args = append([]string{"--root", e.root, "--runroot", e.run, "--storage-driver", "vfs",
		"--runtime", "runc", "--cgroup-manager", "cgroupfs", "--events-backend", "file"},
		args...)
	out, err := exec.CommandContext(ctx, "podman", args...).CombinedOutput()
	if err != nil {
		e.Fatalf("podman %v: %v: %s", args, err, out)
	}
	return string(out)
}

// container runs one as Kubernetes runs it under PodSecurity "restricted", with a read-only root. Without a network of
// its own choice it has only a loopback.
func (e *engine) container(args ...string) string {
	e.Helper()
	confined := []string{"run", "--read-only", "--cap-drop", "all", "--security-opt", "no-new-privileges",
		"--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096"}
	if !slices.Contains(args, "--network") {
		confined = append(confined, "--network", "none")
	}
	return e.podman(append(confined, args...)...)
}

// stop stops a container, which must end by itself and with status 0.
func (e *engine) stop(name string) {
	e.Helper()
	e.podman("stop", "--time", grace, name)
	if status := e.podman("inspect", "--format", "{{.State.ExitCode}}", name); strings.TrimSpace(status) != "0" {
		e.Errorf("%s ended with %s: %s", name, status, e.podman("logs", name))
	}
}

func (e *engine) wants(text, output string) {
	e.Helper()
	if !strings.Contains(output, text) {
		e.Errorf("want %q in: %s", text, output)
	}
}

// waitFor waits for a text in the log of a container.
func (e *engine) waitFor(name, text string) {
	e.Helper()
	deadline := time.After(patience)
	for !strings.Contains(e.podman("logs", name), text) {
		select {
		case <-deadline:
			e.Fatalf("%s does not log %q: %s", name, text, e.podman("logs", name))
		case <-time.After(100 * time.Millisecond):
		}
	}
}
