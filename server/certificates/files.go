package certificates

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"muster/internal/disk"
	"muster/internal/inputfile"
	"muster/internal/keyfile"
	"muster/internal/wire"
	"muster/server/advice"
	"muster/server/files"
	"muster/server/trust"
)

// tempSuffix ends the name of a file that is not yet complete.
const tempSuffix = ".muster-new"

// A target is one file of a specification, and what is there now.
type target struct {
	kind, path string
	mode       fs.FileMode
	uid, gid   int
	old, data  []byte
	same       bool // content, owner and mode are as wanted
}

// targets looks at a specification's files, and refuses those that may not be replaced. Without p they have no data.
func (m *Manager) targets(st *state, p *pair) (list []*target, err error) {
	for _, kind := range slices.Sorted(maps.Keys(st.Specification.Files)) {
		parts := st.Specification.Parts(kind)
		t, failed := newTarget(st, kind, slices.Contains(parts, "key"))
		failed = cmp.Or(failed, m.checkPlace(t.path))
		if failed == nil {
			failed = t.look()
		}
		if failed == nil && p != nil {
			t.data, failed = p.content(parts)
			t.same = t.same && bytes.Equal(t.old, t.data)
		}
		list, err = append(list, t), errors.Join(err, failed)
	}
	if err == nil && st.Order == "" && !st.adopted() {
		err = foreign(st, list)
	}
	return list, err
}

func newTarget(st *state, kind string, secret bool) (t *target, err error) {
	f, preset := st.Specification.Files[kind], uint32(0o644)
	if secret {
		preset = 0o600
	} else if st.Source == "pushed" {
		preset = mostPushed
	}
	mode, err := f.Perm(preset)
	t = &target{kind: kind, path: f.Path, mode: fs.FileMode(mode), uid: os.Geteuid(), gid: os.Getegid()}
	if f.Owner != "" && err == nil {
		var u *user.User
		if u, err = user.Lookup(f.Owner); err == nil {
			t.uid, err = strconv.Atoi(u.Uid)
		}
	}
	if f.Group != "" && err == nil {
		var g *user.Group
		if g, err = user.LookupGroup(f.Group); err == nil {
			t.gid, err = strconv.Atoi(g.Gid)
		}
	}
	return t, err
}

// checkPlace refuses a path if another user could change anything on the way to it, or if it is muster's own. No name
// on the way may be a link. So only root can change what was checked.
func (m *Manager) checkPlace(file string) error {
	own := append([]string{m.cfg.State}, m.cfg.Protected...)
	if !strings.HasPrefix(file, m.cfg.in("tls")+string(filepath.Separator)) {
		own = append(own, m.cfg.Dir)
	}
	if strings.HasSuffix(file, tempSuffix) {
		return final{fmt.Errorf("%s: the ending %s is for incomplete files", file, tempSuffix)}
	}
	for at := file; ; at = filepath.Dir(at) {
		info, err := os.Lstat(at)
		switch {
		case slices.ContainsFunc(own, func(path string) bool {
			mine, failed := os.Stat(path)
			return at == path || err == nil && failed == nil && os.SameFile(mine, info)
		}):
			err = fmt.Errorf("%s is muster's own: use another path", at)
		case at == file: // it may be missing
			continue
		case errors.Is(err, fs.ErrNotExist):
			err = advice.New(err, "make the directory: mkdir "+inputfile.ShellWord(at))
		case err != nil:
		case !info.IsDir():
			err = fmt.Errorf("%s: is a link, or no directory: name the directory itself", at)
		case at == filepath.Dir(file) && info.Mode().Perm()&0o022 != 0:
			err = fmt.Errorf("%s: mode %v lets other users change its files: chmod go-w %[1]s", at, info.Mode())
		default:
			err = inputfile.Safe(at)
		}
		if err != nil {
			return final{err}
		}
		if at == filepath.Dir(at) {
			return nil
		}
	}
}

func (t *target) look() error {
	info, err := os.Lstat(t.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && !info.Mode().IsRegular() {
		err = final{fmt.Errorf("%s: is a link, or no regular file: it is not replaced", t.path)}
	}
	if err == nil {
		t.old, err = inputfile.Read(t.path, inputfile.Configured, inputfile.MaxBytes)
	}
	if err != nil {
		return err
	}
	uid, gid := ownerOf(info)
	t.same = uid == t.uid && gid == t.gid && info.Mode() == t.mode
	blocks, err := keyfile.Blocks(t.old)
	if err != nil || len(t.old) > 0 && len(blocks) == 0 || slices.ContainsFunc(blocks, func(b *pem.Block) bool {
		return !replaceable.MatchString(b.Type)
	}) {
		return final{advice.Errorf("move it away, or use another path",
			"%s has something else than keys and certificates in PEM, and is not replaced", t.path)}
	}
	return nil
}

var replaceable = regexp.MustCompile(`^(CERTIFICATE|(RSA |EC |ENCRYPTED )?PRIVATE KEY|(DH|EC) PARAMETERS)$`)

func foreign(st *state, list []*target) error {
	for _, t := range list {
		if slices.Contains(st.Written, t.path) || !bytes.Contains(t.old, []byte("PRIVATE KEY-----")) {
			continue
		}
		_, leaf, err := found(list)
		if err == nil && len(leaf.URIs) > 0 && strings.HasPrefix(leaf.URIs[0].Path, "/"+string(wire.RoleService)+"/") {
			continue // of a former installation
		}
		return final{advice.Errorf(fmt.Sprintf("to keep it until its renewal: muster-server certificate adopt %[1]s; "+
			"to replace it: muster-server certificate renew %[1]s", st.Name),
			"%s has a key that muster did not make", t.path)}
	}
	return nil
}

func found(list []*target) (*pair, *x509.Certificate, error) {
	for _, k := range list {
		for _, c := range list {
			if p, err := tls.X509KeyPair(c.old, k.old); err == nil {
				key, err := keyfile.Marshal(p.PrivateKey, nil)
				leaf := trust.EncodeCertificates([]*x509.Certificate{p.Leaf})
				return &pair{Key: string(key), Certificate: leaf}, p.Leaf, err
			}
		}
	}
	return nil, nil, errors.New("the files have no key with its certificate")
}

// write replaces the targets that differ. All are on disk beside their paths before the first is replaced, so a full
// disk changes nothing. If the process dies between two renames, the next one repeats this.
func (m *Manager) write(list []*target) error {
	list = slices.DeleteFunc(slices.Clone(list), func(t *target) bool { return t.same })
	for _, t := range list {
		if err := t.stage(); err != nil {
			for _, t := range list {
				_ = os.Remove(t.path + tempSuffix) // err is what matters
			}
			return err
		}
		m.cfg.Step("wrote " + t.kind)
	}
	for _, t := range list {
		if err := os.Rename(t.path+tempSuffix, t.path); err != nil {
			return err
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

// stage writes the new file beside the target: in the same directory it gets the same SELinux context.
func (t *target) stage() error {
	return files.WriteNew(t.path+tempSuffix, t.data, func(f *os.File) error {
		info, err := f.Stat()
		if err != nil {
			return err
		}
		if uid, gid := ownerOf(info); uid != t.uid || gid != t.gid {
			err = f.Chown(t.uid, t.gid)
		}
		return errors.Join(err, f.Chmod(t.mode))
	})
}

func remove(path string) error {
	err := os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
