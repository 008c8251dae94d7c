// Command image writes the container image as an OCI layout, without a container engine:
//
//	image -out DIR -version V -revision COMMIT -time SECONDS DIRECTORY...
//
// There is a directory for each platform, such as dist/bin/linux-amd64, filled by deploy/release/binaries.sh. The same
// input makes the same bytes.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Annotations of https://github.com/opencontainers/image-spec/blob/main/annotations.md.
const annotation = "org.opencontainers.image."

const sbomType types.MediaType = "application/vnd.cyclonedx+json"

// programs are in an order in which layers that change least come first.
var programs = []string{"muster-server", "muster"}

// An image is what the command line says about the image.
type image struct {
	platforms         []string // directories
	version, revision string
	created           time.Time
}

func main() {
	var (
		m       image
		out     = flag.String("out", "", "directory of the layout; replaced")
		seconds = flag.Int64("time", 0, "time of the files and of the image, seconds since 1970")
	)
	flag.StringVar(&m.version, "version", "", "version of the programs, and tag in the layout")
	flag.StringVar(&m.revision, "revision", "", "commit of the programs")
	flag.Parse()
	m.platforms, m.created = flag.Args(), time.Unix(*seconds, 0).UTC()
	if len(m.platforms) == 0 || *out == "" || m.version == "" {
		fmt.Fprintln(os.Stderr, "image: want -out, -version and a directory for each platform")
		os.Exit(2)
	}
	digest, err := m.write(*out)
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
	fmt.Printf("%s:%s@%s\n", *out, m.version, digest)
}

// write replaces the layout in dir, and returns the digest of the image's index. The layout's own index lists that
// index and the SBOMs, which are a referrer of it.
func (m *image) write(dir string) (v1.Hash, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, from := range m.platforms {
		img, err := m.platform(from)
		if err != nil {
			return v1.Hash{}, err
		}
		platform := v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch(from)}}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: untyped{img}, Descriptor: platform})
	}
	digest, err := index.Digest()
	if err != nil {
		return v1.Hash{}, err
	}
	sboms, err := m.sboms(index)
	if err != nil {
		return v1.Hash{}, err
	}
	if err := os.RemoveAll(dir); err != nil {
		return v1.Hash{}, err
	}
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return v1.Hash{}, err
	}
	return digest, errors.Join(
		path.AppendIndex(index, layout.WithAnnotations(map[string]string{annotation + "ref.name": m.version})),
		path.AppendImage(sboms))
}

func arch(dir string) string { return strings.TrimPrefix(filepath.Base(dir), "linux-") }

func (m *image) platform(dir string) (v1.Image, error) {
	base := newTree(m.created)
	base.base()
	trees := []*tree{base}
	for _, program := range programs {
		t := newTree(m.created)
		t.program(dir, program)
		trees = append(trees, t)
	}
	layers := make([]v1.Layer, len(trees))
	for i, t := range trees {
		var err error
		if layers[i], err = t.layer(); err != nil {
			return nil, err
		}
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err := mutate.ConfigFile(img, m.config(arch(dir)))
	if err != nil {
		return nil, err
	}
	return mutate.AppendLayers(img, layers...)
}

// An untyped image has no artifact type in the index. Copies made by skopeo omit the type, and so had another digest.
type untyped struct{ v1.Image }

// ArtifactType returns "". Without it the type would be that of the configuration.
func (untyped) ArtifactType() (string, error) { return "", nil }

// config returns what an engine reads. The user is a number, since Kubernetes refuses names as runAsNonRoot.
func (m *image) config(arch string) *v1.ConfigFile {
	return &v1.ConfigFile{
		OS:           "linux",
		Architecture: arch,
		Created:      v1.Time{Time: m.created},
		RootFS:       v1.RootFS{Type: "layers"},
		Config: v1.Config{
			User:       fmt.Sprintf("%d:%d", user, user),
			WorkingDir: home,
			Entrypoint: []string{"/usr/bin/muster"},
			Cmd:        []string{"provisioner", "run"},
			Env:        []string{"PATH=/usr/bin", "MUSTER_CONFIG=" + home + "/provisioner/provisioner.yaml"},
			Labels: map[string]string{
				annotation + "title":       "muster",
				annotation + "description": "Zero-touch enrollment for machine fleets through NATS",
				annotation + "version":     m.version,
				annotation + "revision":    m.revision,
				annotation + "licenses":    "Apache-2.0",
				annotation + "created":     m.created.Format(time.RFC3339),
			},
		},
	}
}

// sboms returns an artifact that has index as its subject: a layer for each program of each platform.
func (m *image) sboms(index v1.ImageIndex) (v1.Image, error) {
	subject, err := partial.Descriptor(index)
	if err != nil {
		return nil, err
	}
	artifact := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), sbomType)
	for _, dir := range m.platforms {
		for _, program := range programs {
			text, err := os.ReadFile(filepath.Join(dir, program+".cdx.json"))
			if err != nil {
				return nil, err
			}
			artifact, err = mutate.Append(artifact, mutate.Addendum{
				Layer:       static.NewLayer(text, sbomType),
				Annotations: map[string]string{annotation + "title": program + "-linux-" + arch(dir) + ".cdx.json"},
			})
			if err != nil {
				return nil, err
			}
		}
	}
	return mutate.Subject(artifact, *subject).(v1.Image), nil
}
