// Package release_test makes a release as `make release` does, and verifies it as docs/upgrade.md says.
package release_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"muster/internal/testproc"
)

// TestReleaseIsReproducibleAndVerifiable makes a release for one system from two clones, the second one with nothing
// compiled before.
func TestReleaseIsReproducibleAndVerifiable(t *testing.T) {
	t.Parallel()
	testproc.NeedsInstall(t)
	dir := t.TempDir()
	key, public := filepath.Join(dir, "key.pem"), filepath.Join(dir, "muster-release.pub")
	run(t, dir, nil, "openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", key)
	run(t, dir, nil, "openssl", "pkey", "-in", key, "-pubout", "-out", public)

	first := makeRelease(t, filepath.Join(dir, "a"), key)
	second := makeRelease(t, filepath.Join(dir, "another-directory"), key, "GOCACHE="+filepath.Join(dir, "cache"))
	sums := read(t, filepath.Join(first, "SHA256SUMS"))
	if again := read(t, filepath.Join(second, "SHA256SUMS")); again != sums {
		t.Errorf("checksums differ:\n%s\n%s", sums, again)
	}
	checkContents(t, first, sums)

	verification := documentedVerification(t)
	run(t, first, nil, "cp", public, ".")
	run(t, first, nil, "bash", "-euc", verification)
	for _, name := range []string{"SHA256SUMS", "SHA256SUMS.sig", archiveIn(t, first)} {
		path := filepath.Join(first, filepath.Base(name))
		original := []byte(read(t, path))
		changed := bytes.Clone(original)
		changed[len(changed)/2] ^= 1
		write(t, path, changed)
		if out, err := command(t, first, nil, "bash", "-euc", verification); err == nil {
			t.Errorf("a changed byte in %s is not noticed: %s", path, out)
		}
		write(t, path, original)
	}
}

// TestReleaseRefusesMistakes has the mistakes that are found before anything is built.
func TestReleaseRefusesMistakes(t *testing.T) {
	t.Parallel()
	clone := filepath.Join(t.TempDir(), "clone")
	run(t, ".", nil, "git", "clone", "-q", "../..", clone)
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"version":   {[]string{"1.0"}, `release: version is "1.0", want one such as v0.1.0`},
		"changelog": {[]string{"v99.0.0"}, "release: CHANGELOG.md has no section for 99.0.0: "},
		"key":       {[]string{"v0.1.0", "/dev/null"}, "release: key /dev/null does not sign: "},
	} {
		out, err := command(t, clone, nil, "deploy/release/release.sh", tt.args...)
		if err == nil || !strings.Contains(out, tt.want) {
			t.Errorf("%s: %v, %q, want %q", name, err, out, tt.want)
		}
	}
	write(t, filepath.Join(clone, "extra.go"), nil)
	if out, err := command(t, clone, nil, "deploy/release/release.sh", "v0.1.0"); err == nil ||
		!strings.Contains(out, "release: the tree differs from its commit: ") {
		t.Errorf("a file more: %v, %q", err, out)
	}
}

// makeRelease returns the directory of a release that is made in a new clone.
func makeRelease(t *testing.T, clone, key string, environment ...string) string {
	t.Helper()
	run(t, ".", nil, "git", "clone", "-q", "../..", clone)
	number := regexp.MustCompile(`(?m)^## .*?(\d+\.\d+\.\d+)`).FindStringSubmatch(read(t, "../../CHANGELOG.md"))
	if number == nil {
		t.Fatal("CHANGELOG.md names no version")
	}
	version := "v" + number[1]
	run(t, clone, append(environment, "SYSTEMS=linux/amd64"), "make", "release", "VERSION="+version, "KEY="+key)
	return filepath.Join(clone, "dist/release", version)
}

// checkContents holds a release to its parts, and its provenance to the checksums.
func checkContents(t *testing.T, dir, sums string) {
	t.Helper()
	for _, part := range []string{"_linux_amd64.tar.gz", "_linux_amd64.cdx.json", "RELEASE_NOTES.md", ".provenance.json"} {
		if !strings.Contains(sums, part) {
			t.Errorf("no checksum of a file *%s:\n%s", part, sums)
		}
	}
	found, err := filepath.Glob(filepath.Join(dir, "*.provenance.json"))
	if err != nil || len(found) != 1 {
		t.Fatalf("provenance: %v, %v", found, err)
	}
	var statement struct {
		Subject []struct {
			Name   string
			Digest map[string]string
		}
	}
	if err := json.Unmarshal([]byte(read(t, found[0])), &statement); err != nil {
		t.Fatal(err)
	}
	for _, s := range statement.Subject {
		if !strings.Contains(sums, s.Digest["sha256"]+"  "+s.Name+"\n") {
			t.Errorf("provenance has %s with another checksum", s.Name)
		}
	}
	if len(statement.Subject) < 4 {
		t.Errorf("provenance has %d files only", len(statement.Subject))
	}
	names := strings.Join(namesIn(t, archiveIn(t, dir)), "\n")
	for _, want := range []string{
		"/muster\n", "/muster-server\n", "/LICENSE\n", "/THIRD_PARTY_LICENSES.muster\n", "/man/muster-node.1.gz\n",
		"/completions/_muster\n",
	} {
		if !strings.Contains(names+"\n", want) {
			t.Errorf("no %q in the archive:\n%s", strings.TrimSpace(want), names)
		}
	}
}

func archiveIn(t *testing.T, dir string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "*_linux_amd64.tar.gz"))
	if err != nil || len(found) != 1 {
		t.Fatalf("archives: %v, %v", found, err)
	}
	return found[0]
}

func namesIn(t *testing.T, archive string) (names []string) {
	t.Helper()
	unzipped, err := gzip.NewReader(strings.NewReader(read(t, archive)))
	if err != nil {
		t.Fatal(err)
	}
	files := tar.NewReader(unzipped)
	for {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return names
		} else if err != nil {
			t.Fatal(err)
		}
		names = append(names, header.Name)
	}
}

// documentedVerification returns the commands of docs/upgrade.md.
func documentedVerification(t *testing.T) string {
	t.Helper()
	block := regexp.MustCompile("(?s)```sh\n(openssl dgst .*?)```").FindStringSubmatch(read(t, "../../docs/upgrade.md"))
	if block == nil {
		t.Fatal("docs/upgrade.md does not say how a download is verified")
	}
	return block[1]
}

func run(t *testing.T, dir string, environment []string, program string, args ...string) {
	t.Helper()
	if out, err := command(t, dir, environment, program, args...); err != nil {
		t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
}

// command returns all output of a program that runs in dir.
func command(t *testing.T, dir string, environment []string, program string, args ...string) (string, error) {
	t.Helper()
	c := exec.CommandContext(t.Context(), program, args...)
	c.Dir = dir
	c.Env = append(os.Environ(), environment...)
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
