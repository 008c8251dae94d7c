package certificates

import (
	"bytes"
	"crypto"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"muster/internal/disk"
	"muster/internal/inputfile"
	"muster/internal/keyfile"
	"muster/internal/wire"
	"muster/server/advice"
	"muster/server/trust"
)

// tempSuffix ends the name of a file that is not yet complete.
const tempSuffix = ".muster-new"

// A target is one file of a specification, and what is there now.
type target struct {
	kind, path, base string
	dir              *os.Root
	mode             fs.FileMode
	uid, gid         int
	old, data        []byte
	same             bool // content, owner and mode are as wanted
}

// targets opens the directories of a specification's files, and refuses files that may not be replaced. p may be nil.
// The caller has to close them.
func (m *Manager) targets(st *state, p *pair) (list []*target, err error) {
	all := st.Specification.Files.All()
	var errs []error
	for _, kind := range slices.Sorted(maps.Keys(all)) {
		t, err := m.target(st, kind, all[kind])
		if err == nil && p != nil {
			t.data, err = p.content(kind, all[kind])
			t.same = t.same && bytes.Equal(t.old, t.data)
		}
		if t != nil {
			list = append(list, t)
		}
		errs = append(errs, err)
	}
	errs = append(errs, foreign(st, list))
	if err := errors.Join(errs...); err != nil {
		closeAll(list)
		return nil, err
	}
	return list, nil
}

func closeAll(list []*target) {
	for _, t := range list {
		_ = t.dir.Close() // a directory
	}
}

func (m *Manager) target(st *state, kind string, f *wire.SpecificationFile) (*target, error) {
	preset := uint32(0o644)
	if st.Specification.Files.Holds(kind, "key") {
		preset = 0o600
	} else if st.Source == "pushed" {
		preset = 0o640
	}
	mode, err := f.Perm(preset)
	if err != nil {
		return nil, err
	}
	t := &target{kind: kind, path: f.Path, base: filepath.Base(f.Path), mode: fs.FileMode(mode)}
	if strings.HasSuffix(t.base, tempSuffix) {
		return nil, final{fmt.Errorf("%s: the ending %s is for incomplete files", f.Path, tempSuffix)}
	}
	uid, uerr := account(f.Owner, os.Geteuid(), func(name string) (string, error) {
		u, err := user.Lookup(name)
		if err != nil {
			return "", err
		}
		return u.Uid, nil
	})
	gid, gerr := account(f.Group, os.Getegid(), func(name string) (string, error) {
		g, err := user.LookupGroup(name)
		if err != nil {
			return "", err
		}
		return g.Gid, nil
	})
	if err := errors.Join(uerr, gerr); err != nil {
		return nil, fmt.Errorf("%s: %w", f.Path, err)
	}
	t.uid, t.gid = uid, gid
	if t.dir, err = m.openDir(filepath.Dir(f.Path), f.Path); err != nil {
		return nil, err
	}
	return t, t.look()
}

// account returns the number of a user or group; "" is the agent's own.
func account(name string, own int, lookup func(string) (string, error)) (int, error) {
	if name == "" {
		return own, nil
	}
	id, err := lookup(name)
	if n, numeric := strconv.Atoi(name); err != nil && numeric == nil {
		return n, nil
	} else if err != nil {
		return 0, err
	}
	return strconv.Atoi(id)
}

// openDir opens a directory for one of its files. It follows no link, and no other user can change anything on the way
// to it. muster's own directories are refused.
func (m *Manager) openDir(dir, file string) (*os.Root, error) {
	own := append([]string{filepath.Dir(m.cfg.Settings), m.cfg.State}, m.cfg.Protected...)
	for _, path := range own {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			own = append(own, real)
		}
	}
	if slices.Contains(own, file) {
		return nil, final{fmt.Errorf("%s is muster's own file", file)}
	}
	at := string(filepath.Separator)
	root, err := os.OpenRoot(at)
	for _, name := range strings.Split(strings.Trim(dir, at), at) {
		if err != nil {
			break
		}
		at = filepath.Join(at, name)
		tls := m.cfg.tlsDir()
		if at != filepath.Dir(tls) || dir != tls && !strings.HasPrefix(dir, tls+string(filepath.Separator)) {
			err = notOwn(at, own)
		}
		var next *os.Root
		if err == nil {
			next, err = enter(root, name, at)
		}
		_ = root.Close()
		root = next
	}
	if err != nil {
		return nil, err
	}
	if info, err := root.Stat("."); err != nil || info.Mode().Perm()&0o022 != 0 {
		_ = root.Close()
		return nil, errors.Join(err, final{fmt.Errorf("%s: mode %v lets other users change files: chmod go-w %s", dir,
			info.Mode(), inputfile.ShellWord(dir))})
	}
	return root, nil
}

// notOwn refuses one of muster's own directories, whatever its path is.
func notOwn(at string, own []string) error {
	info, err := os.Stat(at)
	for _, path := range own {
		if mine, failed := os.Stat(path); err == nil && failed == nil && os.SameFile(info, mine) {
			return final{fmt.Errorf("%s is muster's own directory: use another one", at)}
		}
	}
	return nil
}

// enter opens the directory name, whose path is at, in root.
func enter(root *os.Root, name, at string) (*os.Root, error) {
	info, err := root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, final{advice.Errorf("make the directory, owned by root: mkdir "+inputfile.ShellWord(at),
			"%s: the directory is missing", at)}
	case err != nil:
		return nil, err
	case !info.IsDir():
		return nil, final{fmt.Errorf("%s: is not a directory, or a link to one: name the directory itself", at)}
	}
	if err := inputfile.Safe(at); err != nil {
		return nil, final{err}
	}
	next, err := root.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	if opened, err := next.Stat("."); err != nil || !os.SameFile(info, opened) {
		return nil, errors.Join(fmt.Errorf("%s was replaced", at), err, next.Close())
	}
	return next, nil
}

// look reads what is at the target.
func (t *target) look() error {
	info, err := t.dir.Lstat(t.base)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return final{fmt.Errorf("%s: is a link, or no regular file: it is not replaced", t.path)}
	}
	f, err := t.dir.Open(t.base)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // nothing is written
	if t.old, err = inputfile.ReadAll(f, t.path, inputfile.MaxBytes); err != nil {
		return final{err}
	}
	uid, gid := ownerOf(info)
	t.same = uid == t.uid && gid == t.gid && info.Mode().Perm() == t.mode &&
		info.Mode()&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky) == 0
	blocks, err := keyfile.Blocks(t.old)
	for _, b := range blocks {
		if b.Type == "OPENSSH PRIVATE KEY" || b.Type != "CERTIFICATE" && !strings.HasSuffix(b.Type, "PRIVATE KEY") &&
			!strings.HasSuffix(b.Type, " PARAMETERS") {
			err = fmt.Errorf("a PEM block %.40q", b.Type)
		}
	}
	if err == nil && len(blocks) == 0 && len(t.old) > 0 {
		err = errors.New("not PEM")
	}
	if err != nil {
		return final{advice.Errorf("move it away, or use another path",
			"%s has something else than keys and certificates, and is not replaced: %w", t.path, err)}
	}
	return nil
}

// foreign refuses to replace a key that muster did not make.
func foreign(st *state, list []*target) error {
	if st.Replace {
		return nil
	}
	for _, t := range list {
		if slices.Contains(st.Written, t.path) || !bytes.Contains(t.old, []byte("PRIVATE KEY-----")) {
			continue
		}
		if leaf, err := found(list); err == nil && serviceOf(leaf) {
			continue // of a former installation
		}
		return final{advice.Errorf(fmt.Sprintf("keep it until its renewal with `muster-server certificate adopt %[1]s`, "+
			"or replace it with `muster-server certificate renew %[1]s`", st.Name), "%s has a key of another program", t.path)}
	}
	return nil
}

// found returns the key and certificate that are in files, with everything needed to go on with them.
func found(list []*target) (*pair, error) {
	var p pair
	var key crypto.PrivateKey
	var leaf, chain, roots []byte
	for _, t := range list {
		if k, err := keyfile.Parse(t.old, nil); err == nil {
			key = k
		}
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, errors.New("no file has a key that can be read")
	}
	seen := make(map[string]bool)
	for _, t := range list {
		blocks, _ := keyfile.Blocks(t.old) // look has read them
		for _, b := range blocks {
			certs, err := trust.ParseCertificates(string(pem.EncodeToMemory(&pem.Block{Type: b.Type, Bytes: b.Bytes})))
			if b.Type != "CERTIFICATE" || err != nil || seen[string(b.Bytes)] {
				continue
			}
			seen[string(b.Bytes)] = true
			text := []byte(trust.EncodeCertificates(certs))
			switch {
			case wire.SamePublicKey(certs[0].PublicKey, signer.Public()) && leaf == nil:
				leaf = text
			case wire.SelfSigned(certs[0]):
				roots = append(roots, text...)
			default:
				chain = append(chain, text...)
			}
		}
	}
	if leaf == nil {
		return nil, errors.New("no file has a certificate for the key")
	}
	text, err := keyfile.Marshal(key, nil)
	p = pair{Key: string(text), Certificate: string(leaf) + string(chain), CA: string(roots)}
	return &p, err
}

// serviceOf reports whether muster issued the certificate, to this node or its predecessor.
func serviceOf(p *pair) bool {
	chain, err := p.chain()
	if err != nil {
		return false
	}
	for _, u := range chain[0].URIs {
		if u.Scheme == "spiffe" && strings.HasPrefix(u.Path, "/"+string(wire.RoleService)+"/") {
			return true
		}
	}
	return false
}

// write makes all targets that differ as they should be. Everything is on disk beside them before the first is
// replaced: a full disk changes nothing. A process that dies between two renames is followed by one that repeats this.
func (m *Manager) write(list []*target) error {
	list = slices.DeleteFunc(slices.Clone(list), func(t *target) bool { return t.same })
	for _, t := range list {
		if err := t.stage(); err != nil {
			for _, t := range list {
				_ = t.dir.Remove(t.base + tempSuffix) // the error is more important
			}
			return fmt.Errorf("%s: %w", t.path, err)
		}
		m.cfg.Step("wrote " + t.kind)
	}
	for _, t := range list {
		if err := t.dir.Rename(t.base+tempSuffix, t.base); err != nil {
			return fmt.Errorf("%s: %w", t.path, err)
		}
		m.cfg.Step("replaced " + t.kind)
	}
	for _, t := range list {
		if err := disk.SyncDir(filepath.Dir(t.path)); err != nil {
			return err
		}
	}
	return nil
}

// stage writes and syncs the new file beside the target. It is in the same directory, and so has its SELinux context.
func (t *target) stage() error {
	temp := t.base + tempSuffix
	if err := t.dir.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := t.dir.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(t.data)
	if info, failed := f.Stat(); failed == nil {
		if uid, gid := ownerOf(info); uid != t.uid || gid != t.gid {
			err = errors.Join(err, f.Chown(t.uid, t.gid))
		}
	}
	return errors.Join(err, f.Chmod(t.mode), f.Sync(), f.Close())
}
