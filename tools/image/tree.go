package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

const (
	user = 65532 // the number that distroless images use for a user without rights
	home = "/var/lib/muster"
)

// A tree is the content of one layer. The first error stays.
type tree struct {
	buf  bytes.Buffer
	tar  *tar.Writer
	time time.Time
	err  error
}

func newTree(created time.Time) *tree {
	t := &tree{time: created}
	t.tar = tar.NewWriter(&t.buf)
	return t
}

// base adds all but the programs: the user, the order of name resolution, roots of trust, and the directories of a
// setup, which a volume takes owner and mode from.
func (t *tree) base() {
	t.dir("etc", 0o755, 0)
	t.file("etc/passwd", 0o644, []byte("root:x:0:0:root:/:/\nmuster:x:65532:65532:muster:"+home+":/\n"))
	t.file("etc/group", 0o644, []byte("root:x:0:\nmuster:x:65532:\n"))
	t.file("etc/nsswitch.conf", 0o644, []byte("hosts: files dns\n"))
	t.file("etc/ssl/certs/ca-certificates.crt", 0o644, roots())
	t.dir("etc/muster", 0o700, user)
	t.dir("tmp", 0o1777, 0)
	t.dir("var/lib", 0o755, 0)
	t.dir("var/lib/muster", 0o700, user)
}

// roots returns the certificates of Mozilla's program, of the version in go.mod. Those that it accepts under conditions
// only are left out, since a file cannot say the condition.
func roots() []byte {
	var text []byte
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})...)
		}
	}
	return text
}

// program adds a program of the directory from, and the licenses of what it is built of.
func (t *tree) program(from, name string) {
	t.copy("usr/bin/"+name, 0o755, filepath.Join(from, name))
	t.copy("usr/share/doc/"+name+"/"+name+".licenses.txt", 0o644, filepath.Join(from, name+".licenses.txt"))
}

func (t *tree) copy(name string, mode int64, from string) {
	content, err := os.ReadFile(from)
	t.err = errors.Join(t.err, err)
	t.file(name, mode, content)
}

func (t *tree) dir(name string, mode int64, owner int) {
	t.add(tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode, Uid: owner, Gid: owner}, nil)
}

func (t *tree) file(name string, mode int64, content []byte) {
	t.add(tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content))}, content)
}

func (t *tree) add(h tar.Header, content []byte) {
	if t.err != nil {
		return
	}
	h.ModTime = t.time
	err := t.tar.WriteHeader(&h)
	if err == nil {
		_, err = t.tar.Write(content)
	}
	t.err = err
}

func (t *tree) layer() (v1.Layer, error) {
	if err := errors.Join(t.err, t.tar.Close()); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(t.buf.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
}
