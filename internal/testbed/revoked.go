package testbed

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/internal/daemon"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/trust"
)

// revocations checks that the log of revocations is in effect. This takes up to a second, or longer while a cluster
// elects a leader:
//
//   - the record of a revoked identity says so, unless it was retired since;
//   - nothing revoked is live or admitted;
//   - every unexpired certificate of a revoked or retired record is named;
//   - each configured issuer has a valid CRL with exactly its revoked, unexpired
//     certificates, and perhaps those that expired since the former CRL.
func (c *checker) revocations() {
	limit := revocationPatience
	if c.f.cluster != nil {
		limit = patience
	}
	var wrong []string
	if !within(limit, 100*time.Millisecond, func() bool {
		wrong = c.revocationsWrong()
		return len(wrong) == 0
	}) {
		c.bad("%s", strings.Join(wrong, "; "))
	}
}

// revocationPatience bounds how long revocations may take. It is far longer than a second, since machines may be slow.
const revocationPatience = 30 * time.Second

// During an election a request may get no answer, so each check is short.
const lookTimeout = 5 * time.Second

// revocationsWrong checks log, records, gate and CRL.
func (c *checker) revocationsWrong() (wrong []string) {
	f := c.f
	bad := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	ctx, cancel := context.WithTimeout(f.Context(), lookTimeout)
	defer cancel()
	store, now := f.daemon.Store(), f.Clock.Now().UTC()
	revoked := map[string]trust.RevokedCertificate{}
	newest := map[wire.Identity]trust.RevocationKind{}
	last := map[wire.Identity]string{}
	for _, e := range revocationsOf(store) {
		for _, cert := range e.Certificates {
			revoked[cert.Serial] = cert
		}
		if e.Node != "" && e.Kind != trust.HandedOver && e.Kind != trust.RevokedService {
			newest[e.Node], last[e.Node] = e.Kind, e.ID
		}
	}
	wrong = append(wrong, c.unnamed(revoked, newest, now)...)
	for id, kind := range newest {
		r, _, err := store.Record(ctx, id)
		if err != nil {
			bad("record of %s: %v", id, err)
			continue
		}
		if r == nil || r.State == provisioner.StateRetired {
			continue
		}
		if r.Revoked != last[id] && r.State != provisioner.StateRevoked {
			bad("%s: entry %s of the log (%s) is not on its record, which is %s and has followed %q", id, last[id],
				kind, r.State, r.Revoked)
		}
		for _, i := range issued(r) {
			_, listed := revoked[i.Serial]
			if listed && r.State != provisioner.StateRevoked || !listed && r.State == provisioner.StateRevoked &&
				now.Before(i.NotAfter) {
				bad("%s: is %s, certificate %s in the log: %v", id, r.State, i.Serial, listed)
			}
			if listed && f.daemon.Admits(ctx, id, i.Serial) == nil {
				bad("%s: revoked certificate %s is admitted", id, i.Serial)
			}
		}
	}
	return append(wrong, c.crlWrong(revoked, now)...)
}

func revocationsOf(store provisioner.Store) (list []*trust.Revocation) {
	entries := slices.SortedFunc(maps.Values(maps.Collect(store.Logs().Revocations.All())),
		func(a, b trust.Entry[*trust.Revocation]) int {
			return cmp.Compare(a.Revision, b.Revision)
		})
	for _, e := range entries {
		list = append(list, e.Value)
	}
	return list
}

// unnamed returns the unexpired certificates of revoked identities that no entry names.
func (c *checker) unnamed(
	named map[string]trust.RevokedCertificate, about map[wire.Identity]trust.RevocationKind, now time.Time,
) (wrong []string) {
	ctx, store := c.f.Context(), c.f.daemon.Store()
	for id := range about {
		var missing []string
		state := provisioner.StateNone
		miss := func(serial string, notAfter time.Time) {
			if _, ok := named[serial]; !ok && now.Before(notAfter) && !slices.Contains(missing, serial) {
				missing = append(missing, serial)
			}
		}
		err := store.Revisions(ctx, id, func(r *provisioner.Record, _ trust.Revision) error {
			state = r.State
			for _, i := range issued(r) {
				miss(i.Serial, i.NotAfter)
			}
			for _, old := range r.Superseded {
				miss(old.Serial, old.NotAfter)
			}
			return nil
		})
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("history of %s: %v", id, err))
		}
		if out := state == provisioner.StateRevoked || state == provisioner.StateRetired; out && len(missing) > 0 {
			wrong = append(wrong, fmt.Sprintf("%s: is %s, and no entry names its certificates %s", id, state,
				strings.Join(missing, ", ")))
		}
	}
	return wrong
}

func (c *checker) crlWrong(revoked map[string]trust.RevokedCertificate, now time.Time) (wrong []string) {
	cfg := &c.f.cfg
	authorities := []daemon.PreviousConfig{{Root: cfg.CA.Root, Certificate: cfg.CA.Certificate, Key: cfg.CA.Key}}
	authorities = append(authorities, cfg.CA.Previous...)
	all := c.f.daemon.CRLs()
	if cfg.Puppet.Configured() {
		_, branch, err := cfg.Puppet.ReadBundle()
		if err != nil || len(all) == 0 {
			return append(wrong, fmt.Sprintf("no CRL of Puppet's authority: %v", err))
		}
		wrong = append(wrong, crlOfWrong(all[len(all)-1], branch.Issuing, revoked, now)...)
		all = all[:len(all)-1]
	}
	for n, p := range authorities {
		root, err := readCertificate(p.Root)
		if err != nil {
			return append(wrong, err.Error())
		}
		issuing, err := readCertificate(p.Certificate)
		if err != nil {
			return append(wrong, err.Error())
		}
		if n > 0 && (p.Key == "" || now.After(root.NotAfter) || now.After(issuing.NotAfter)) {
			continue
		}
		if len(all) == 0 {
			return append(wrong, fmt.Sprintf("no CRL of %q", issuing.Subject.CommonName))
		}
		wrong = append(wrong, crlOfWrong(all[0], issuing, revoked, now)...)
		all = all[1:]
	}
	if len(all) > 0 {
		wrong = append(wrong, fmt.Sprintf("%d CRLs of issuers whose keys are not configured", len(all)))
	}
	return wrong
}

func crlOfWrong(c *trust.CRL, issuing *x509.Certificate, revoked map[string]trust.RevokedCertificate,
	now time.Time) (wrong []string) {
	bad := func(format string, args ...any) {
		wrong = append(wrong, fmt.Sprintf("CRL %d of %q: ", c.Number, issuing.Subject.CommonName)+
			fmt.Sprintf(format, args...))
	}
	list, err := x509.ParseRevocationList(c.DER)
	if err != nil {
		bad("%v", err)
		return wrong
	}
	if err := list.CheckSignatureFrom(issuing); err != nil {
		bad("%v", err)
	}
	issuer := fmt.Sprintf("%x", issuing.SubjectKeyId)
	if c.Issuer != issuer || !bytes.Equal(list.AuthorityKeyId, issuing.SubjectKeyId) {
		bad("names issuer %x, but is listed for issuer %s", list.AuthorityKeyId, c.Issuer)
	}
	if list.Number.Uint64() != c.Number || now.Add(time.Second).Before(list.ThisUpdate) ||
		!now.Before(list.NextUpdate) {
		bad("has number %v and is valid from %v to %v, and it is %v", list.Number, list.ThisUpdate, list.NextUpdate,
			now)
	}
	on := map[string]bool{}
	for _, e := range list.RevokedCertificateEntries {
		serial := e.SerialNumber.Text(16)
		on[serial] = true
		if r, ok := revoked[serial]; !ok || r.Issuer != issuer {
			bad("certificate %s is not revoked, or of another issuer", serial)
		}
	}
	for serial, r := range revoked {
		if !on[serial] && now.Before(r.NotAfter) && r.Issuer == issuer {
			bad("certificate %s is revoked, but not on the CRL", serial)
		}
	}
	return wrong
}

// Revoke revokes a node and fails the test if that does not work.
func (f *Fleet) Revoke(identity string) {
	f.t.Helper()
	must(f.t, f.daemon.Orders().Nodes.Revoke(f.Context(), wire.Identity(identity), Operator()))
}

// Retire retires a node and fails the test if that does not work.
func (f *Fleet) Retire(identity string) {
	f.t.Helper()
	must(f.t, f.daemon.Orders().Nodes.Retire(f.Context(), wire.Identity(identity), Operator()))
}

// Operator returns an operator and a reason, for orders.
func Operator() trust.Cause {
	return trust.Cause{By: "operator@fleet.test", Why: "a test"}
}

// OnCRL reports whether the newest CRL of the current issuer names the certificate.
func (f *Fleet) OnCRL(serial string) bool {
	f.t.Helper()
	return onCRL(f.t, f.daemon.CRLs()[0], serial)
}

func onCRL(t testing.TB, c *trust.CRL, serial string) bool {
	t.Helper()
	if c == nil {
		return false
	}
	list, err := x509.ParseRevocationList(c.DER)
	must(t, err)
	return slices.ContainsFunc(list.RevokedCertificateEntries, func(e x509.RevocationListEntry) bool {
		return e.SerialNumber.Text(16) == serial
	})
}
