package server

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Names in the live directory.
const (
	keyFile         = "private.pem"
	certificateFile = "certificate.pem"
	caFile          = "ca.pem"
	confName        = "server.conf"
	appliedFile     = "applied.json"   // what is yet to be confirmed
	confirmedFile   = "confirmed.json" // the same, once it is; see recheck.go
	untriedFile     = "untried"        // no broker of the configuration was reached yet; see stray.go
	policyDir       = "policies"
	regoDir         = "policies/rego"
)

// places are the paths that one agent works with. All are absolute, and live
// has no symbolic link in it, so that the renames of apply.go move the
// directory and not a link to it.
type places struct {
	conf   string // server.conf, as configured; perhaps a link into live
	live   string // the directory of the set in force
	parent string
	next   string // the set being made
	old    string // the set before, only where the switch takes two renames
	lock   string
	clock  string
	last   string // the last failure to enroll, until there is a set
	orders string // commands that were accepted
}

// newPlaces returns the places for a server.conf and a directory, which need not
// exist. It creates the directories above them with mode 0755.
func newPlaces(confFile, sslDir string) (places, error) {
	err, another := makeParent(confFile), makeParent(sslDir)
	if another != nil && (err == nil || another.Error() != err.Error()) { // mostly they are in one directory
		err = errors.Join(err, another)
	}
	if err != nil {
		return places{}, mayNot(err)
	}
	return findPlaces(confFile, sslDir)
}

// mayNot says with err what to do, if it is about permissions or a disk that is read-only.
func mayNot(err error) error {
	const elsewhere = "give it a --config and an --ssl-dir in directories that "
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: run the agent as root, or "+elsewhere+"its user may write", err)
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w: have the agent write there, or "+elsewhere+"can be written and outlast a restart", err)
	}
	return err
}

func makeParent(path string) error {
	abs, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	dir := filepath.Dir(abs)
	err = os.MkdirAll(dir, 0o755)
	if errors.Is(err, fs.ErrExist) { // a link: /etc/muster into a /var that is new, say
		if _, why := resolve(dir); why != nil {
			return why
		}
	}
	return err
}

// findPlaces is newPlaces for those who only look: it creates nothing.
func findPlaces(confFile, sslDir string) (places, error) {
	conf, err := filepath.Abs(confFile)
	if err != nil {
		return places{}, err
	}
	live, err := resolve(sslDir)
	if err != nil {
		return places{}, err
	}
	if err := checkConfName(conf, live); err != nil {
		return places{}, err
	}
	parent, base := filepath.Dir(live), filepath.Base(live)
	if parent == live {
		return places{}, fmt.Errorf("ssl directory %q is the root of a file system, want a directory in one", live)
	}
	beside := func(suffix string) string { return filepath.Join(parent, "."+base+suffix) }
	p := places{conf: conf, live: live, parent: parent,
		next: beside(".next"), old: beside(".old"), lock: beside(".lock"), clock: beside(".clock"), last: beside(".last"),
		orders: beside(".orders")}
	switch fi, err := os.Stat(live); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return places{}, err
	case !fi.IsDir():
		return places{}, fmt.Errorf("ssl directory %q is a file, want a directory", live)
	}
	return p, nil
}

// checkConfName refuses a directory where the name of server.conf is wanted, which is a slip: it
// would be set aside with all that is in it, the node's own files among it, and a link put in
// its place. Only what is called like a file of configuration is one that something else has
// made of it; see linkConf.
func checkConfName(conf, live string) error {
	fi, err := os.Stat(conf)
	if err != nil || !fi.IsDir() {
		return nil // what is wrong with it is said when it is read
	}
	real, err := resolve(conf)
	if err != nil {
		return err
	}
	inside, err := filepath.Rel(real, live)
	if err == nil && !filepath.IsLocal(inside) && filepath.Ext(conf) == filepath.Ext(DefaultConfFile) {
		return nil
	}
	return fmt.Errorf("configuration file %q is a directory, want the name of a file, such as %s", conf, filepath.Join(conf, filepath.Base(DefaultConfFile)))
}

// resolve returns path without symbolic links, as far as it exists.
func resolve(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	real, err := filepath.EvalSymlinks(abs)
	if err == nil {
		return real, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		if !errors.As(err, new(*fs.PathError)) { // links that lead to each other
			err = fmt.Errorf("%q: %w: see where its links lead", abs, err)
		}
		return "", err
	}
	if _, err := os.Lstat(abs); err == nil {
		return "", fmt.Errorf("%q is a symbolic link to nothing: make the directory it points to", abs)
	}
	dir := filepath.Dir(abs)
	if dir == abs {
		return abs, nil
	}
	dir, err = resolve(dir)
	return filepath.Join(dir, filepath.Base(abs)), err
}

func (p places) in(name string) string     { return filepath.Join(p.live, filepath.FromSlash(name)) }
func (p places) inNext(name string) string { return filepath.Join(p.next, filepath.FromSlash(name)) }

// exists reports whether there is something at path, a dangling link included.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
