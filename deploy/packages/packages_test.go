// Package packages_test builds, installs and boots the packages.
package packages_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"muster/internal/testproc"
)

// root is the directory of the repository.
const root = "../.."

// run runs a command in the repository, and returns its output.
func run(t *testing.T, env []string, command ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Dir, cmd.Env = root, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(command, " "), err, out)
	}
	return string(out)
}

// build makes packages in a new directory from the programs and documents in dist.
func build(t *testing.T, dist, version string) (dir string) {
	t.Helper()
	own := t.TempDir()
	for _, name := range []string{"bin", "man", "completions"} {
		if err := os.Symlink(filepath.Join(dist, name), filepath.Join(own, name)); err != nil {
			t.Fatal(err)
		}
	}
	run(t, []string{"DIST=" + own, "ARCHES=amd64", "NFPM=bin/tools/nfpm", "VERSION=" + version},
		"deploy/packages/packages.sh")
	return filepath.Join(own, "packages")
}

// stubs returns a directory like dist whose programs do nothing.
func stubs(t *testing.T) string {
	t.Helper()
	dist := t.TempDir()
	for _, name := range []string{
		"bin/linux-amd64/muster", "bin/linux-amd64/muster-server",
		"man/muster.1.gz", "man/muster-node.1.gz", "man/muster-server.1.gz",
		"completions/muster", "completions/_muster", "completions/muster.fish",
	} {
		path := filepath.Join(dist, name)
		err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("#!/bin/sh\n"), 0o600))
		if err != nil {
			t.Fatal(err)
		}
	}
	return dist
}

func TestPackagesAreTheSameWhenMadeAgain(t *testing.T) {
	t.Parallel()
	testproc.Needs(t, "../../bin/tools/nfpm")
	dist := stubs(t)
	first, again := build(t, dist, "v0.1.0"), build(t, dist, "v0.1.0")
	files, err := os.ReadDir(first)
	if err != nil || len(files) != 6 {
		t.Fatalf("there are %d packages, want 6: %v", len(files), err)
	}
	for _, f := range files {
		one, err1 := os.ReadFile(filepath.Join(first, f.Name()))
		two, err2 := os.ReadFile(filepath.Join(again, f.Name()))
		if err := errors.Join(err1, err2); err != nil || sha256.Sum256(one) != sha256.Sum256(two) {
			t.Errorf("%s differs: %v", f.Name(), err)
		}
	}
}

// TestPackagesHaveTheirFiles: a conffile would stand in for a node's configuration.
func TestPackagesHaveTheirFiles(t *testing.T) {
	t.Parallel()
	testproc.Needs(t, "../../bin/tools/nfpm", "dpkg-deb", "rpm")
	dir := build(t, stubs(t), "v0.1.0-rc1")
	for name, want := range map[string][]string{
		"muster": {
			"755 /usr/bin/muster", "644 /usr/lib/systemd/system/muster-provisioner.service",
			"644 /usr/lib/systemd/system/muster-broker.service", "644 /usr/lib/sysusers.d/muster.conf",
			"644 /usr/lib/tmpfiles.d/muster.conf", "644 /usr/share/bash-completion/completions/muster",
			"644 /usr/share/zsh/site-functions/_muster", "644 /usr/share/fish/vendor_completions.d/muster.fish",
			"644 /usr/share/man/man1/muster.1.gz", "644 /usr/share/man/man1/muster-node.1.gz",
			"644 /usr/share/doc/muster/copyright", "644 /usr/share/doc/muster/LICENSE",
			"644 /usr/share/doc/muster/changelog.gz",
		},
		"muster-server": {
			"755 /usr/bin/muster-server", "644 /usr/lib/systemd/system/muster-server.service",
			"644 /usr/lib/systemd/system/muster-server.path",
			"644 /usr/lib/systemd/system-preset/50-muster-server.preset",
			"644 /usr/share/man/man1/muster-server.1.gz", "644 /usr/share/doc/muster-server/copyright",
			"644 /usr/share/doc/muster-server/LICENSE", "644 /usr/share/doc/muster-server/changelog.gz",
			"644 /var/lib/certmonger/cas/muster",
		},
	} {
		rpm := filepath.Join(dir, name+"-0.1.0~rc1-1.x86_64.rpm")
		got := run(t, nil, "rpm", "-qp", "--qf", "[%{FILEMODES:octal} %{FILENAMES}\n]", rpm)
		files := lines(regexp.MustCompile(`(?m)^0?100(.*)$`), got)
		slices.Sort(files)
		slices.Sort(want)
		if !slices.Equal(files, want) {
			t.Errorf("%s has\n%s\nwant\n%s", rpm, strings.Join(files, "\n"), strings.Join(want, "\n"))
		}
		deb := filepath.Join(dir, name+"_0.1.0~rc1-1_amd64.deb")
		paths := lines(regexp.MustCompile(`(?m)^-\S+ root/root .* \.(/\S+)$`), run(t, nil, "dpkg-deb", "-c", deb))
		for _, file := range want {
			if _, path, _ := strings.Cut(file, " "); !strings.Contains(strings.Join(paths, "\n")+"\n", path+"\n") {
				t.Errorf("%s has no %s", deb, path)
			}
		}
		if info := run(t, nil, "dpkg-deb", "-I", deb); strings.Contains(info, "conffiles") {
			t.Errorf("%s has configuration files:\n%s", deb, info)
		}
		apk := run(t, nil, "tar", "-tzf", filepath.Join(dir, name+"_0.1.0_rc1-r1_x86_64.apk"))
		if !strings.Contains(apk, "etc/init.d/muster-") || strings.Contains(apk, "systemd") {
			t.Errorf("the apk has\n%s", apk)
		}
	}
}

// TestRPMIsAsItWasPacked installs into an empty root.
func TestRPMIsAsItWasPacked(t *testing.T) {
	t.Parallel()
	testproc.Needs(t, "../../bin/tools/nfpm", "rpm")
	testproc.NeedsRoot(t)
	packages, err := filepath.Glob(build(t, stubs(t), "v0.1.0") + "/*.rpm")
	if err != nil {
		t.Fatal(err)
	}
	into := "--root=" + t.TempDir()
	run(t, nil, append([]string{"rpm", into, "-i", "--nodeps", "--noscripts"}, packages...)...)
	if out := run(t, nil, "rpm", into, "-V", "--nodeps", "muster", "muster-server"); out != "" {
		t.Errorf("rpm -V says\n%s", out)
	}
}

func TestAgentIsSmall(t *testing.T) {
	t.Parallel()
	testproc.NeedsInstall(t)
	const limit = 13_000_000
	info, err := os.Stat(filepath.Join(root, "dist/bin/linux-amd64/muster-server"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > limit {
		t.Errorf("the agent has %d bytes, want at most %d", info.Size(), limit)
	}
}

// TestUnitsAreHardened has systemd itself read the units.
func TestUnitsAreHardened(t *testing.T) {
	t.Parallel()
	testproc.Needs(t, "systemd-analyze")
	for name, limit := range map[string]string{
		"muster-provisioner.service": "20", "muster-broker.service": "20", "muster-server.service": "25",
	} {
		run(t, nil, "systemd-analyze", "security", "--offline=yes", "--threshold="+limit, "deploy/systemd/"+name)
	}
	dir := t.TempDir() // its programs are not installed
	for _, name := range []string{"muster-provisioner.service", "muster-broker.service", "muster-server.service",
		"muster-server.path"} {
		text, err := os.ReadFile(filepath.Join(root, "deploy/systemd", name))
		if err != nil {
			t.Fatal(err)
		}
		text = regexp.MustCompile(`/usr/bin/muster\S*`).ReplaceAll(text, []byte("/bin/echo"))
		if err := os.WriteFile(filepath.Join(dir, name), bytes.TrimSpace(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out := run(t, nil, "systemd-analyze", "verify", "--man=no", filepath.Join(dir, name))
		if strings.Contains(out, name) {
			t.Errorf("%s", out)
		}
	}
}

func TestScriptsAreClean(t *testing.T) {
	t.Parallel()
	testproc.Needs(t, "shellcheck")
	run(t, nil, "bash", "-c",
		"shellcheck deploy/*.sh deploy/*/*.sh deploy/*/*/*.sh && shellcheck -s sh -e SC2034 deploy/openrc/*")
}

func lines(pattern *regexp.Regexp, text string) []string {
	var all []string
	for _, m := range pattern.FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return all
}
