package setup

import (
	"bytes"
	"cmp"
	"crypto"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"text/template"

	"muster/internal/keyfile"
	"muster/internal/wire"
	"muster/provisioner/broker"
)

// writer writes new files in a directory, or one level below, until the first error. The umask does not change their
// permissions.
type writer struct {
	dir        string
	passphrase []byte // of keys; none: plain
	err        error
}

func (w *writer) file(name string, mode fs.FileMode, data []byte) {
	if w.err != nil {
		return
	}
	path := filepath.Join(w.dir, name)
	if dir := filepath.Dir(path); dir != w.dir {
		//nolint:gosec // a directory; the keys in it are 0600
		if w.err = errors.Join(os.MkdirAll(dir, 0o700), os.Chmod(dir, 0o755)); w.err != nil {
			return
		}
	}
	// A secret is private from its first byte on.
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		w.err = err
		return
	}
	_, err = f.Write(data)
	w.err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
}

func (w *writer) key(name string, key crypto.PrivateKey) {
	b, err := keyfile.Marshal(key, w.passphrase)
	if err != nil {
		w.err = errors.Join(w.err, err)
		return
	}
	w.file(name, 0o600, b)
	clear(b)
}

// Files of the secrets that provisioners share for external brokers.
const (
	provisionerFile = "cluster/provisioner"
	systemFile      = "cluster/system"
	issuerFile      = "cluster/issuer"
	xkeyFile        = "cluster/xkey"
	routesFile      = "cluster/routes"
)

// brokerKeys are not encrypted: provisioners reconnect unattended.
func (w *writer) brokerKeys() {
	keys, err := broker.NewKeys()
	w.err = errors.Join(w.err, err)
	for name, secret := range map[string]wire.Secret{
		provisionerFile: keys.Provisioner,
		systemFile:      keys.System,
		issuerFile:      keys.Issuer,
		xkeyFile:        keys.XKey,
		routesFile:      keys.Routes,
	} {
		w.file(name, 0o600, []byte(secret+"\n"))
	}
}

// dataDir makes the data directory, unless it exists, and gives the setup to its owner.
func (w *writer) dataDir(path string) {
	if w.err != nil {
		return
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(w.dir, path)
	}
	err := os.Mkdir(path, 0o700)
	if err == nil {
		err = os.Chmod(path, 0o700) //nolint:gosec // a directory, whatever the umask
	} else if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	w.err = cmp.Or(err, giveToOwnerOf(path, w.dir))
}

func (w *writer) template(name string, data any) {
	if w.err != nil {
		return
	}
	t, err := template.New(filepath.Base(name)+".tmpl").ParseFS(templates, "templates/"+name+".tmpl")
	if err != nil {
		w.err = err
		return
	}
	var b bytes.Buffer
	if w.err = t.Execute(&b, data); w.err == nil {
		w.file(name, 0o644, b.Bytes())
	}
}
