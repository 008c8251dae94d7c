package certificates

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"muster/internal/disk"
	"muster/internal/inputfile"
	"muster/internal/wire"
	"muster/server/files"
	"muster/server/trust"
)

// A state is what a state file contains, with private keys. It is on disk before the next step is taken.
type state struct {
	Status

	Specification wire.Specification `json:"specification"` // the last one that was accepted
	Identity      string             `json:"identity,omitempty"`

	InForce *pair `json:"in_force,omitempty"`
	Staged  *pair `json:"staged,omitempty"` // to be in force once it is issued and saved

	Adopted bool     `json:"adopted,omitempty"` // another program wrote the files in force
	Replace bool     `json:"replace,omitempty"` // an operator lets keys of other programs be replaced
	Written []string `json:"written,omitempty"` // paths
	Act     bool     `json:"act,omitempty"`     // the action has to run
	Order   Verb     `json:"order,omitempty"`   // renew or rekey, not yet done
	Tries   int      `json:"tries,omitempty"`   // failed, one after the other

	Reported *wire.CertificateState `json:"reported,omitempty"` // what the provisioner knows

	onDisk []byte
}

// describe says in the status what the certificate in force is. If the clock is ahead and it is due at once, its renewal
// waits.
func (st *state) describe(leaf *x509.Certificate, now time.Time) {
	st.Serial, st.NotBefore, st.NotAfter = serial(leaf), leaf.NotBefore, leaf.NotAfter
	st.RenewAt = st.InForce.renewAt(&st.Specification, leaf)
	if _, life := trust.LifeOf(leaf); st.RenewAt.Before(now.Add(life / 24)) {
		st.RenewAt = now.Add(life / 24)
	}
	st.Names = slices.Clone(leaf.DNSNames)
	for _, ip := range leaf.IPAddresses {
		st.Names = append(st.Names, ip.String())
	}
}

func serial(leaf *x509.Certificate) string { return fmt.Sprintf("%x", leaf.SerialNumber) }

const stateSuffix = ".json"

// readStates reads all state files. An unreadable one counts as none and is an error: files with certificates of muster
// are renewed then.
func readStates(dir string) (map[string]*state, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	all := make(map[string]*state)
	for _, e := range entries {
		name, is := strings.CutSuffix(e.Name(), stateSuffix)
		if !is || !wire.ValidCertificateName(name) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		b, failed := inputfile.Read(path, inputfile.Configured, inputfile.MaxBytes)
		st := &state{onDisk: b}
		if failed == nil {
			if failed = json.Unmarshal(b, st); failed != nil {
				failed = fmt.Errorf("%s: %w", path, failed)
			}
		}
		if failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		st.Name = name
		all[name] = st
	}
	return all, err
}

// mark takes a step of the life of a certificate and writes it to disk.
func (m *Manager) mark(st *state, to string) error {
	if st.State != to {
		st.State, st.Since = to, m.cfg.Now().UTC()
	}
	return m.put(st)
}

// put writes the state if it changed.
func (m *Manager) put(st *state) error {
	b, err := json.Marshal(st)
	if err != nil || bytes.Equal(b, st.onDisk) {
		return err
	}
	if err := os.MkdirAll(m.cfg.State, 0o700); err != nil {
		return err
	}
	if err := files.Replace(filepath.Join(m.cfg.State, st.Name+stateSuffix), b, 0o600); err != nil {
		return err
	}
	if err := disk.SyncDir(m.cfg.State); err != nil {
		return err
	}
	st.onDisk = b
	m.cfg.Step("state " + st.State)
	return nil
}

// Statuses reads the state of all service certificates, sorted by name, also while no manager runs. The error is about
// files that cannot be read, and may come with statuses.
func Statuses(cfg Config) ([]Status, error) {
	states, err := readStates(cfg.State)
	var list []Status
	for _, st := range states {
		list = append(list, st.Status)
	}
	wants, _, failed := cfg.wants(nil)
	for name, w := range wants {
		if states[name] != nil {
			continue
		}
		st := Status{Name: name, Source: w.source, State: Wanted}
		if w.problem != nil {
			st.State, st.Stuck, st.Reason = Failed, true, oneLine(w.problem)
		}
		list = append(list, st)
	}
	slices.SortFunc(list, func(a, b Status) int { return strings.Compare(a.Name, b.Name) })
	return list, errors.Join(err, failed)
}
