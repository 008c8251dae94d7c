// Package release_test makes a release as `make release` does, and verifies it as docs/install.md says.
package release_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"muster/internal/testproc"
)

// TestReleaseIsReproducibleAndVerifiable makes a release from two clones, the second one with another umask and time
// zone. Compiled packages are shared: without -trimpath they would not be.
func TestReleaseIsReproducibleAndVerifiable(t *testing.T) {
	t.Parallel()
	testproc.NeedsInstall(t)
	dir := t.TempDir()
	key, public := filepath.Join(dir, "key.pem"), filepath.Join(dir, "muster-release.pub")
	run(t, dir, "openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", key)
	run(t, dir, "openssl", "pkey", "-in", key, "-pubout", "-out", public)

	first := makeRelease(t, filepath.Join(dir, "a"), key, "")
	second := makeRelease(t, filepath.Join(dir, "another-directory"), key, "umask 077; export TZ=Asia/Tokyo;")
	sums := read(t, filepath.Join(first, "SHA256SUMS"))
	if again := read(t, filepath.Join(second, "SHA256SUMS")); again != sums {
		t.Errorf("checksums differ:\n%s\n%s", sums, again)
	}
	checkContents(t, first, sums)

	verification := documentedVerification(t)
	run(t, first, "cp", public, ".")
	run(t, first, "bash", "-euc", verification)
	for _, name := range []string{"SHA256SUMS", "SHA256SUMS.sig", filepath.Base(only(t, first, "*_linux_amd64.tar.gz"))} {
		path := filepath.Join(first, name)
		original := []byte(read(t, path))
		changed := bytes.Clone(original)
		changed[len(changed)/2] ^= 1
		write(t, path, changed)
		if out, err := command(t, first, "bash", "-euc", verification); err == nil {
			t.Errorf("a changed byte in %s is not noticed: %s", path, out)
		}
		write(t, path, original)
	}
}

// TestReleaseRefusesMistakes has the mistakes that are found before anything is built.
func TestReleaseRefusesMistakes(t *testing.T) {
	t.Parallel()
	clone := filepath.Join(t.TempDir(), "clone")
	run(t, ".", "git", "clone", "-q", "../..", clone)
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"version":   {[]string{"1.0"}, `release: version is "1.0", want one such as v0.1.0 or v0.1.0-rc1`},
		"changelog": {[]string{"v99.0.0"}, "release: CHANGELOG.md has no section for 99.0.0: "},
		"key":       {[]string{"v0.1.0", "/dev/null"}, "release: key /dev/null does not sign: "},
	} {
		out, err := command(t, clone, "deploy/release/release.sh", tt.args...)
		if err == nil || !strings.HasPrefix(out, tt.want) || strings.Count(out, "\n") != 1 {
			t.Errorf("%s: %v, %q, want one line: %q", name, err, out, tt.want)
		}
	}
	write(t, filepath.Join(clone, "extra.go"), nil)
	if out, err := command(t, clone, "deploy/release/release.sh", "v0.1.0"); err == nil ||
		!strings.Contains(out, "release: the tree differs from its commit: ") {
		t.Errorf("a file more: %v, %q", err, out)
	}
}

// makeRelease returns the directory of a release that is made in a new clone, after some commands of the shell.
func makeRelease(t *testing.T, clone, key, before string) string {
	t.Helper()
	number := regexp.MustCompile(`(?m)^## .*?(\d+\.\d+\.\d+)`).FindStringSubmatch(read(t, "../../CHANGELOG.md"))
	if number == nil {
		t.Fatal("CHANGELOG.md names no version")
	}
	version := "v" + number[1]
	run(t, ".", "bash", "-euc", before+`git clone -q ../.. "$1"
		mkdir "$1/bin"
		cp -r ../../bin/tools "$1/bin"
		make -C "$1" release SYSTEMS="linux/amd64 linux/arm64" VERSION="$2" KEY="$3"`, "bash", clone, version, key)
	return filepath.Join(clone, "dist/release", version)
}

// checkContents holds a release to its parts, and its provenance to the checksums.
func checkContents(t *testing.T, dir, sums string) {
	t.Helper()
	for _, part := range []string{
		"_linux_amd64.tar.gz", "_linux_amd64.cdx.json", "_image.tar", "_amd64.deb", ".aarch64.rpm", "_x86_64.apk", ".tgz",
		"RELEASE_NOTES.md", ".provenance.json",
	} {
		if !strings.Contains(sums, part) {
			t.Errorf("no checksum of a file *%s:\n%s", part, sums)
		}
	}
	var statement struct {
		Subject []struct {
			Name   string
			Digest map[string]string
		}
	}
	if err := json.Unmarshal([]byte(read(t, only(t, dir, "*.provenance.json"))), &statement); err != nil {
		t.Fatal(err)
	}
	for _, s := range statement.Subject {
		if !strings.Contains(sums, s.Digest["sha256"]+"  "+s.Name+"\n") {
			t.Errorf("provenance has %s with another checksum", s.Name)
		}
	}
	if want := strings.Count(sums, "\n") - 1; len(statement.Subject) != want {
		t.Errorf("provenance has %d files, want %d", len(statement.Subject), want)
	}
	names := run(t, dir, "tar", "-tzf", only(t, dir, "*_linux_amd64.tar.gz"))
	for _, want := range []string{
		"/muster\n", "/muster-server\n", "/LICENSE\n", "/muster.licenses.txt\n", "/muster-server.licenses.txt\n",
		"/docs/install.md\n", "/man/muster-node.1.gz\n", "/completions/_muster\n", "/systemd/muster-server.service\n",
	} {
		if !strings.Contains(names, want) {
			t.Errorf("no %q in the archive:\n%s", strings.TrimSpace(want), names)
		}
	}
	chart := run(t, dir, "tar", "-xzOf", only(t, dir, "muster-*.tgz"), "muster/Chart.yaml", "muster/files/alerts.yml")
	if number := strings.TrimPrefix(filepath.Base(dir), "v"); !strings.Contains(chart, "\nversion: "+number+"\n") ||
		!strings.Contains(chart, "\nappVersion: v"+number+"\n") || !strings.Contains(chart, "alert: ") {
		t.Errorf("the chart has another version, or no alerts:\n%s", chart)
	}
}

// only returns the single file of a directory that matches.
func only(t *testing.T, dir, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %v, %v", pattern, found, err)
	}
	return found[0]
}

// documentedVerification returns the commands of docs/install.md.
func documentedVerification(t *testing.T) string {
	t.Helper()
	block := regexp.MustCompile("(?s)```sh\n(openssl dgst .*?)```").FindStringSubmatch(read(t, "../../docs/install.md"))
	if block == nil {
		t.Fatal("docs/install.md does not say how a release is verified")
	}
	return block[1]
}

func run(t *testing.T, dir, program string, args ...string) string {
	t.Helper()
	out, err := command(t, dir, program, args...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
	return out
}

// command returns all output of a program that runs in dir.
func command(t *testing.T, dir, program string, args ...string) (string, error) {
	t.Helper()
	c := exec.CommandContext(t.Context(), program, args...)
	c.Dir = dir
	out, err := c.CombinedOutput()
	return string(out), err
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}
