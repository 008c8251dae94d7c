// Package image_test makes the container image and runs it with podman.
package image_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

const version = "v1.2.3-test"

// A descriptor names a blob of an OCI layout.
type descriptor struct {
	MediaType    string
	ArtifactType string
	Digest       string
	Size         int
	Platform     struct{ OS, Architecture string }
	Annotations  map[string]string
}

// A manifest is that of an index or of an image.
type manifest struct {
	Manifests, Layers []descriptor
	Config, Subject   descriptor
}

// A config is what an engine reads of an image.
type config struct {
	OS, Architecture string
	Config           struct {
		User            string
		Entrypoint, Cmd []string
		Labels          map[string]string
	}
}

// TestImageIsACompleteLayout checks an image of short files in place of programs, since the layout does not depend on
// their content.
func TestImageIsACompleteLayout(t *testing.T) {
	t.Parallel()
	programs := fakePrograms(t)
	dir := filepath.Join(t.TempDir(), "image")
	digest := makeImage(t, programs, dir)
	var top, index manifest
	read(t, filepath.Join(dir, "index.json"), &top)
	blob(t, dir, top.Manifests[0], &index)
	if top.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != version ||
		!strings.HasSuffix(digest, ":"+version+"@"+top.Manifests[0].Digest) {
		t.Errorf("the layout names %+v, the program printed %q", top.Manifests[0], digest)
	}
	var platforms []string
	for _, d := range index.Manifests {
		platforms = append(platforms, d.Platform.OS+"/"+d.Platform.Architecture)
		if d.ArtifactType != "" {
			t.Errorf("artifact type %s: a copy made by skopeo has none, and another digest", d.ArtifactType)
		}
		checkImage(t, dir, programs, d)
	}
	if want := []string{"linux/amd64", "linux/arm64"}; !slices.Equal(platforms, want) {
		t.Errorf("platforms %v, want %v", platforms, want)
	}
	var sboms manifest
	blob(t, dir, top.Manifests[1], &sboms)
	if sboms.Config.MediaType != "application/vnd.cyclonedx+json" || len(sboms.Layers) != 4 ||
		sboms.Subject.Digest != top.Manifests[0].Digest {
		t.Errorf("SBOMs %+v, want one of each program and platform, about the index", sboms)
	}
	for _, d := range sboms.Layers {
		blob(t, dir, d, nil)
	}
	again := filepath.Join(t.TempDir(), "again")
	makeImage(t, programs, again)
	if out, err := exec.Command("diff", "-r", dir, again).CombinedOutput(); err != nil {
		t.Errorf("the second image differs: %s", out)
	}
}

// checkImage checks what an engine reads of the image d, and each file in it.
func checkImage(t *testing.T, dir, programs string, d descriptor) {
	t.Helper()
	var m manifest
	var c config
	blob(t, dir, d, &m)
	blob(t, dir, m.Config, &c)
	if c.OS != d.Platform.OS || c.Architecture != d.Platform.Architecture || c.Config.User != "65532:65532" ||
		!slices.Equal(c.Config.Entrypoint, []string{"/usr/bin/muster"}) {
		t.Errorf("configuration %+v", c)
	}
	for _, label := range []string{"title", "description", "version", "revision", "licenses", "created"} {
		if c.Config.Labels["org.opencontainers.image."+label] == "" {
			t.Errorf("label %s is empty", label)
		}
	}
	got, contents := map[string]string{}, map[string]string{}
	for _, layer := range m.Layers {
		unpack(t, blob(t, dir, layer, nil), got, contents)
	}
	want := map[string]string{
		"etc/": "0755 0", "etc/passwd": "0644 0", "etc/group": "0644 0", "etc/nsswitch.conf": "0644 0",
		"etc/ssl/certs/ca-certificates.crt": "0644 0", "etc/muster/": "0700 65532", "tmp/": "1777 0",
		"var/lib/": "0755 0", "var/lib/muster/": "0700 65532",
		"usr/bin/muster": "0755 0", "usr/share/doc/muster/muster.licenses.txt": "0644 0",
		"usr/bin/muster-server": "0755 0", "usr/share/doc/muster-server/muster-server.licenses.txt": "0644 0",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("files %v\nwant %v", got, want)
	}
	if !x509.NewCertPool().AppendCertsFromPEM([]byte(contents["etc/ssl/certs/ca-certificates.crt"])) {
		t.Error("no roots of trust")
	}
	program, err := os.ReadFile(filepath.Join(programs, "linux-"+c.Architecture, "muster"))
	if err != nil || contents["usr/bin/muster"] != string(program) {
		t.Errorf("%s has another platform's program: %v", c.Architecture, err)
	}
}

// unpack adds mode and owner, and the content, of each file of a layer.
func unpack(t *testing.T, layer []byte, files, contents map[string]string) {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(layer))
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name], contents[h.Name] = fmt.Sprintf("%04o %d", h.Mode, h.Uid), string(text)
	}
}

// fakePrograms makes a directory of programs with SBOMs and licenses.
func fakePrograms(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, arch := range []string{"amd64", "arm64"} {
		for _, name := range []string{
			"muster", "muster.cdx.json", "muster.licenses.txt",
			"muster-server", "muster-server.cdx.json", "muster-server.licenses.txt",
		} {
			path := filepath.Join(dir, "linux-"+arch, name)
			err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
				os.WriteFile(path, []byte(`"`+name+" for "+arch+`"`), 0o600))
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

// makeImage makes the layout, and returns its name with the digest.
func makeImage(t *testing.T, programs, dir string) string {
	t.Helper()
	cmd := exec.Command("go", "-C", "../../tools", "run", "./image", "-out", dir, "-version", version,
		"-revision", "abcdef", "-time", "1790000000", programs+"/linux-amd64", programs+"/linux-arm64")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// blob returns what d names after a check of size and digest, and decodes it into v if v is not nil.
func blob(t *testing.T, dir string, d descriptor, v any) []byte {
	t.Helper()
	digest := strings.TrimPrefix(d.Digest, "sha256:")
	text := read(t, filepath.Join(dir, "blobs/sha256", digest), v)
	if sum := sha256.Sum256(text); len(text) != d.Size || hex.EncodeToString(sum[:]) != digest {
		t.Fatalf("blob %+v: it has %d bytes, or another digest", d, len(text))
	}
	return text
}

// read returns a file, and decodes it into v if v is not nil.
func read(t *testing.T, path string, v any) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err == nil && v != nil {
		err = json.Unmarshal(text, v)
	}
	if err != nil {
		t.Fatal(err)
	}
	return text
}
