package setup

import (
	"bytes"
	"crypto"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
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

// unitFuncs write a path into a systemd unit: as a word of a list, or as an argument of a command, which also expands
// $. See systemd.syntax(7) and systemd.service(5).
var unitFuncs = template.FuncMap{
	"word": func(dir, file string) string { return unitWord(dir + file) },
	"argument": func(dir, file string) string {
		return strings.ReplaceAll(unitWord(dir+file), "$", "$$")
	},
}

// unitWord quotes a path as one word and escapes specifiers.
func unitWord(path string) string {
	path = strings.ReplaceAll(path, "%", "%%")
	if !strings.ContainsAny(path, " \"'\\;") {
		return path
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(path) + `"`
}

func (w *writer) template(name string, data any) {
	if w.err != nil {
		return
	}
	t, err := template.New(filepath.Base(name)+".tmpl").Funcs(unitFuncs).ParseFS(templates, "templates/"+name+".tmpl")
	if err != nil {
		w.err = err
		return
	}
	var b bytes.Buffer
	if w.err = t.Execute(&b, data); w.err == nil {
		w.file(name, 0o644, b.Bytes())
	}
}
