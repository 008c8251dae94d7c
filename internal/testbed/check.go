package testbed

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/x509"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"muster/internal/conffile"
	"muster/internal/daemon"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/ca"
	"muster/provisioner/events"
	"muster/provisioner/trust"
)

// Check verifies, from the store and the nodes' disks, everything that must hold of a fleet at any time:
//
//   - each revision of a record may follow the one before;
//   - each certificate on record is a client's, of an authority of the setup, for its identity and its key alone;
//   - no serial belongs to two identities, and no key has two live certificates, unless a clock was ahead;
//   - at most a current and a next certificate are admitted, and the current one was the next one before;
//   - no more keys have certificates from a limited token than it has uses, and each has a claim;
//   - a renewal is of a node with a certificate, and keeps its token's terms;
//   - no stream acknowledges what nodes publish;
//   - each provisioned node has an event, and each event a record;
//   - a provisioned agent's disk matches its record, and its key is private;
//   - requests with a token that asks for sealing were sealed;
//   - nothing revoked is live or admitted, and the CRL names exactly the unexpired revoked certificates;
//   - no secret was logged, reported or stored.
func (f *Fleet) Check() {
	f.t.Helper()
	c := &checker{
		f:         f,
		roots:     x509.NewCertPool(),
		between:   x509.NewCertPool(),
		owner:     map[string]wire.Identity{},
		last:      map[wire.Identity]*provisioner.Record{},
		serial:    map[string]string{},
		certified: certified{},
	}
	if f.cluster != nil {
		f.Eventually("every stream has a leader", f.allLed)
	}
	// Include former authorities: their certificates are in the history.
	for pattern, pool := range map[string]*x509.CertPool{
		"ca*/root.pem": c.roots, "ca*/issuing.pem": c.between, "puppet-ca*/bundle.pem": c.between,
	} {
		for _, path := range c.files(pattern) {
			if cert, err := readCertificate(path); err != nil {
				c.bad("%v", err)
			} else {
				pool.AddCert(cert)
			}
		}
	}
	if err := f.daemon.Store().Revisions(f.Context(), "", c.revision); err != nil {
		f.t.Errorf("Check: %v", err)
	}
	c.claims()
	c.events()
	c.revocations()
	c.streams()
	f.mu.Lock()
	agents := slices.Clone(f.agents)
	f.mu.Unlock()
	for _, a := range agents {
		c.agent(a)
	}
	c.secrets()
}

type checker struct {
	f              *Fleet
	roots, between *x509.CertPool
	owner          map[string]wire.Identity
	last           map[wire.Identity]*provisioner.Record
	serial         map[string]string // newest serial by identity and fingerprint

	certified certified
}

func (c *checker) files(pattern string) []string {
	paths, err := filepath.Glob(filepath.Join(c.f.Dir, pattern))
	if err != nil {
		c.bad("%v", err)
	}
	return paths
}

func (c *checker) bad(format string, args ...any) {
	c.f.t.Helper()
	c.f.t.Errorf("Check: "+format, args...)
}

func (c *checker) revision(r *provisioner.Record, revision trust.Revision) error {
	before := c.last[r.Identity]
	from := provisioner.StateNone
	if before != nil {
		from = before.State
	}
	// The store drops old revisions: the first one kept may follow a dropped one.
	if cut := before == nil && !r.UpdatedAt.Equal(r.FirstEnrolledAt); !cut && !provisioner.CanMove(from, r.State) {
		c.bad("%s revision %d: %s follows %s", r.Identity, revision, r.State, from)
	}
	if before != nil && before.Attempt == r.Attempt {
		c.bad("%s revision %d: attempt %s wrote twice", r.Identity, revision, r.Attempt)
	}
	for _, i := range issued(r) {
		c.certificate(r, i)
	}
	for _, s := range r.Superseded {
		// The store drops old revisions: this may be the only trace of a certificate.
		c.noteOwner(r.Identity, s.Serial)
	}
	c.renewal(before, r, revision)
	if cut := before == nil && !r.UpdatedAt.Equal(r.FirstEnrolledAt); !cut && r.Current != nil &&
		(before == nil || !holds(before, r.Current.Serial)) {
		c.bad("%s revision %d: certificate %s became current without having been offered", r.Identity, revision,
			r.Current.Serial)
	}
	c.certified.revision(r)
	c.last[r.Identity] = r
	return nil
}

func (c *checker) noteOwner(id wire.Identity, serial string) {
	if owner, ok := c.owner[serial]; ok && owner != id {
		c.bad("certificate %s belongs to %s and to %s", serial, owner, id)
	}
	c.owner[serial] = id
}

// namesCertificate reports whether a record names a serial: a revocation of the node covers only such certificates.
func namesCertificate(r *provisioner.Record, serial string) bool {
	old := func(s trust.RevokedCertificate) bool { return s.Serial == serial }
	return holds(r, serial) || slices.ContainsFunc(r.Superseded, old)
}

// issued returns the certificates that a record holds: its current and next one.
func issued(r *provisioner.Record) []*provisioner.Issued {
	both := []*provisioner.Issued{r.Current, r.Next}
	return slices.DeleteFunc(both, func(i *provisioner.Issued) bool { return i == nil })
}

// holds reports whether the current or next certificate of a record has the serial.
func holds(r *provisioner.Record, serial string) bool {
	return slices.ContainsFunc(issued(r), func(i *provisioner.Issued) bool { return i.Serial == serial })
}

func (c *checker) certificate(r *provisioner.Record, i *provisioner.Issued) {
	c.noteOwner(r.Identity, i.Serial)
	key := string(r.Identity) + " " + i.KeyHash
	if s, ok := c.serial[key]; ok && s != i.Serial {
		for _, of := range []*provisioner.Record{c.last[r.Identity], r} {
			if of == nil {
				continue
			}
			for _, live := range issued(of) {
				if live.Serial != s || !live.NotAfter.After(i.OfferedAt) ||
					renewable(live, i.OfferedAt) {
					continue
				}
				if !notYetValid(live, i.OfferedAt) {
					c.bad("%s: one key has two live certificates, %s and %s", r.Identity, s, i.Serial)
				} else if !namesCertificate(r, s) {
					c.bad("%s: the record dropped certificate %s, which begins after %s was offered: a "+
						"revocation would miss it", r.Identity, s, i.Serial)
				}
			}
		}
	}
	c.serial[key] = i.Serial
	leaf, err := x509.ParseCertificate(i.DER)
	if err != nil {
		c.bad("%s: certificate %s: %v", r.Identity, i.Serial, err)
		return
	}
	role, name, err := wire.RoleOf(leaf, "fleet.test")
	if err != nil || role != wire.RoleNode || name != string(r.Identity) {
		c.bad("%s: certificate %s is of %s %q (%v)", r.Identity, i.Serial, role, name, err)
	}
	if !slices.Equal(leaf.DNSNames, []string{string(r.Identity)}) ||
		len(leaf.IPAddresses)+len(leaf.EmailAddresses) > 0 {
		c.bad("%s: certificate %s names %v %v %v", r.Identity, i.Serial, leaf.DNSNames, leaf.IPAddresses,
			leaf.EmailAddresses)
	}
	if leaf.IsCA || !slices.Equal(leaf.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}) ||
		leaf.KeyUsage != x509.KeyUsageDigitalSignature {
		c.bad("%s: certificate %s: CA %v, usages %v %v", r.Identity, i.Serial, leaf.IsCA, leaf.KeyUsage,
			leaf.ExtKeyUsage)
	}
	if hash, err := ca.KeyHash(leaf.PublicKey); err != nil || hash != i.KeyHash || ca.Serial(leaf) != i.Serial ||
		i == r.Next && !slices.Contains(r.Lineage, i.KeyHash) {
		c.bad("%s: certificate %s does not fit its record", r.Identity, i.Serial)
	}
	if _, err := leaf.Verify(x509.VerifyOptions{
		Roots:         c.roots,
		Intermediates: c.between,
		CurrentTime:   leaf.NotBefore.Add(1),
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}); err != nil {
		c.bad("%s: certificate %s: %v", r.Identity, i.Serial, err)
	}
}

func (c *checker) events() {
	c.f.tokens.mu.Lock()
	sealed := maps.Clone(c.f.sealed)
	c.f.tokens.mu.Unlock()
	if !within(eventPatience, 10*time.Millisecond, func() bool { return len(c.unreported()) == 0 }) {
		c.bad("%v are provisioned, but have no event", c.unreported())
	}
	for _, e := range c.f.Events() {
		if e.Type == events.Enrolled && sealed[e.Token] && !e.Sealed {
			c.bad("%s was enrolled by an unsealed request, but its token asks for sealing", e.Node)
		}
		switch e.Type {
		case events.Enrolled, events.Renewed, events.Provisioned:
			if c.owner[e.Serial] != wire.Identity(e.Node) {
				c.bad("event %s of %s: certificate %s is not on the node's record", e.Type, e.Node, e.Serial)
			}
		}
	}
	c.superseded()
}

// A lost acknowledgement delays the event of a confirmation by a second.
const eventPatience = 5 * time.Second

// unreported returns the nodes whose confirmation is on record but in no event.
func (c *checker) unreported() []wire.Identity {
	reported := map[string]bool{}
	for _, e := range c.f.Events() {
		if e.Type == events.Provisioned {
			reported[e.Serial] = true
		}
	}
	var silent []wire.Identity
	for id, r := range c.last {
		if r.State == provisioner.StateProvisioned && !reported[r.Current.Serial] {
			silent = append(silent, id)
		}
	}
	return silent
}

func (c *checker) agent(a *Agent) {
	r := c.last[wire.Identity(a.Identity)]
	leaf, err := readCertificate(filepath.Join(a.Dir, "certificate.pem"))
	if err != nil {
		if r != nil && r.State == provisioner.StateProvisioned {
			c.bad("%s is provisioned on record, but its disk has no certificate: %v", a.Identity, err)
		}
		return
	}
	if r == nil || !holds(r, ca.Serial(leaf)) {
		c.bad("%s has the certificate %s, which is not on its record", a.Identity, ca.Serial(leaf))
	}
	path := filepath.Join(a.Dir, "private.pem")
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		c.bad("%s: %v, %v: want mode 0600", path, info, err)
		return
	}
	b, err := os.ReadFile(path)
	if err != nil {
		c.bad("%v", err)
		return
	}
	key, err := jwt.ParsePrivateKey(b, nil)
	if err != nil {
		c.bad("%s: %v", path, err)
		return
	}
	if pub, ok := key.Public().(*ecdsa.PublicKey); !ok || !pub.Equal(leaf.PublicKey) {
		c.bad("%s: private.pem is not the key of certificate.pem", a.Identity)
	}
	conf, err := os.ReadFile(filepath.Join(a.Dir, "server.conf"))
	if err == nil {
		_, err = conffile.ParseSettings(conf)
	}
	if err != nil {
		c.bad("%s: %v", a.Identity, err)
	}
}

func readCertificate(path string) (*x509.Certificate, error) {
	chain, err := daemon.ReadCertificates(path)
	if err != nil {
		return nil, err
	}
	return chain[0], nil
}

const maxAsked = 1000

// renewable reports whether two thirds of the life are over, so that the key may have another certificate.
func renewable(i *provisioner.Issued, at time.Time) bool {
	start := i.NotBefore.Add(ca.Backdate)
	return !at.Before(start.Add(i.NotAfter.Sub(start) * 2 / 3))
}

// notYetValid reports whether the certificate begins further in the future than clocks may differ. No broker accepts
// it, so its key may have another one.
func notYetValid(i *provisioner.Issued, at time.Time) bool { return i.NotBefore.Sub(at) > ca.Backdate }

func (c *checker) renewal(before, r *provisioner.Record, revision trust.Revision) {
	offered := r.Next != nil && (before == nil || before.Next == nil || before.Next.Serial != r.Next.Serial)
	if before == nil || !offered || r.Decision.Reason != provisioner.ReasonRenew {
		return
	}
	if r.State != provisioner.StateProvisioned || r.Current == nil ||
		!slices.Contains(before.Live(r.UpdatedAt), r.Current.Serial) {
		c.bad("%s revision %d: a renewal leaves no certificate that was live before it", r.Identity, revision)
	}
	if before.Token != r.Token || !bytes.Equal(before.Terms, r.Terms) {
		c.bad("%s revision %d: a renewal changes the token or its terms", r.Identity, revision)
	}
}

// superseded asks the gate about every certificate that was ever on record.
func (c *checker) superseded() {
	asked, now := 0, c.f.Clock.Now().UTC().Truncate(time.Second)
	for serial, id := range c.owner {
		if asked++; asked > maxAsked {
			return
		}
		admitted := c.f.daemon.Admits(c.f.Context(), id, serial) == nil
		if live := slices.Contains(c.last[id].Live(now), serial); admitted && !live {
			c.bad("certificate %s of %s is admitted, but not live on record", serial, id)
		}
	}
}
