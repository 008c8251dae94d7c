package chaos_test

import (
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// A record is the checker's own form: it shares only the form on disk with the program.
type record struct {
	Identity string   `json:"identity"`
	State    string   `json:"state"`
	Current  *issued  `json:"current"`
	Next     *issued  `json:"next"`
	Lineage  []string `json:"lineage"`
	Attempt  string   `json:"attempt"`
	Token    string   `json:"tid"`
	Decision struct {
		Reason string `json:"reason"`
	} `json:"decision"`
}

type issued struct {
	Serial  string `json:"serial"`
	KeyHash string `json:"key_hash"`
	DER     []byte `json:"der"`
}

// A claims entry of a limited token's log.
type claims struct {
	Token *struct {
		Uses int `json:"uses"`
	} `json:"token"`
	Claims   []claim `json:"claims"`
	Releases []claim `json:"releases"`
}

type claim struct {
	Key      string `json:"key"`
	Identity string `json:"identity"`
	Attempt  string `json:"attempt"`
	All      bool   `json:"all"`
}

// holder returns the key and name that hold a use.
func (c claim) holder() string { return c.Key + " " + c.Identity }

// A checker checks what must be true of any fleet's store and disks.
type checker struct {
	t              *testing.T
	bad            func(format string, args ...any) // reports a violation
	moves          map[string][]string              // allowed transitions, from docs/architecture.md
	roots, between *x509.CertPool

	revisions int
	last      map[string]*record
	serials   map[string][]string // ever on record, by identity
	owner     map[string]string   // identity, by serial
	attempts  map[string]bool
	certified map[string]map[string]bool // by token: keys and names with a certificate from it

	limits map[string]int                        // uses, by token
	held   map[string]map[string]map[string]bool // attempts, by token and holder
	most   map[string]int                        // most uses held at once, by token
}

func newChecker(t *testing.T) *checker {
	t.Helper()
	return &checker{t: t, bad: t.Errorf, moves: moves(t), roots: x509.NewCertPool(), between: x509.NewCertPool(),
		last:      map[string]*record{},
		serials:   map[string][]string{},
		owner:     map[string]string{},
		attempts:  map[string]bool{},
		certified: map[string]map[string]bool{},
		limits:    map[string]int{}, held: map[string]map[string]map[string]bool{}, most: map[string]int{}}
}

// check reads the store and returns its findings for the checks of disks.
func check(t *testing.T, store map[string][]stored, caDir string) *checker {
	t.Helper()
	c := newChecker(t)
	for name, pool := range map[string]*x509.CertPool{"root.pem": c.roots, "issuing.pem": c.between} {
		b, err := os.ReadFile(filepath.Join(caDir, name))
		if err != nil || !pool.AppendCertsFromPEM(b) {
			t.Fatalf("%s: %v", name, err)
		}
	}
	c.store(store)
	return c
}

// store checks what is in a store.
func (c *checker) store(store map[string][]stored) {
	c.t.Helper()
	for _, m := range store["MUSTER_NODES"] {
		c.revision(m)
	}
	for _, m := range store["MUSTER_CLAIMS"] {
		c.claims(m)
	}
	c.uses()
}

// moves returns the state table of the documentation: the allowed next states of each.
func moves(t *testing.T) map[string][]string {
	t.Helper()
	b, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(b), "## States of an identity\n")
	text, _, _ = strings.Cut(text, "\n## ")
	rows := regexp.MustCompile(`(?m)^\| ([a-z, ]+) \| ([a-z]+) \| .*\|$`).FindAllStringSubmatch(text, -1)
	moves := map[string][]string{}
	for _, row := range rows {
		for from := range strings.SplitSeq(row[1], ", ") {
			moves[from] = append(moves[from], row[2])
		}
	}
	if !found || !slices.Contains(moves["none"], "enrolled") || len(moves) < 5 {
		t.Fatalf("docs/architecture.md: no table of states: %v", moves)
	}
	return moves
}

// revision takes one revision of a record into account.
func (c *checker) revision(m stored) {
	c.t.Helper()
	c.revisions++
	var r record
	if err := json.Unmarshal(m.data, &r); err != nil {
		c.bad("%s at %d: %v", m.subject, m.sequence, err)
		return
	}
	if want := "muster.node." + strings.ReplaceAll(r.Identity, ".", "_"); m.subject != want {
		c.bad("record of %s at %d is on %s", r.Identity, m.sequence, m.subject)
	}
	before := c.last[r.Identity]
	from := "none"
	if before != nil {
		from = before.State
	}
	if !slices.Contains(c.moves[from], r.State) {
		c.bad("%s at %d: %s follows %s", r.Identity, m.sequence, r.State, from)
	}
	if r.Attempt == "" || c.attempts[r.Attempt] {
		c.bad("%s at %d: attempt %q has written before", r.Identity, m.sequence, r.Attempt)
	}
	c.attempts[r.Attempt] = true
	if r.State == "provisioned" && r.Current == nil || r.State == "enrolled" && (r.Current != nil || r.Next == nil) {
		c.bad("%s at %d: is %s with current %v and next %v", r.Identity, m.sequence, r.State, r.Current != nil,
			r.Next != nil)
	}
	for _, i := range []*issued{r.Current, r.Next} {
		if i != nil {
			c.certificate(&r, i)
		}
	}
	if r.Current != nil && !offered(before, r.Current.Serial) {
		c.bad("%s at %d: certificate %s is current and was never offered", r.Identity, m.sequence, r.Current.Serial)
	}
	// The reasons for which a certificate costs a use.
	if i := r.Next; i != nil && r.Token != "" &&
		slices.Contains([]string{"new", "grant", "one_time_token"}, r.Decision.Reason) {
		if c.certified[r.Token] == nil {
			c.certified[r.Token] = map[string]bool{}
		}
		c.certified[r.Token][i.KeyHash+" "+r.Identity] = true
	}
	c.last[r.Identity] = &r
}

// offered reports whether a record has the certificate.
func offered(r *record, serial string) bool {
	return r != nil && (r.Current != nil && r.Current.Serial == serial || r.Next != nil && r.Next.Serial == serial)
}

// certificate checks a certificate on record.
func (c *checker) certificate(r *record, i *issued) {
	c.t.Helper()
	if owner, ok := c.owner[i.Serial]; ok && owner != r.Identity {
		c.bad("certificate %s belongs to %s and to %s", i.Serial, owner, r.Identity)
	}
	if _, seen := c.owner[i.Serial]; seen {
		return
	}
	c.owner[i.Serial] = r.Identity
	c.serials[r.Identity] = append(c.serials[r.Identity], i.Serial)
	leaf, err := x509.ParseCertificate(i.DER)
	if err != nil {
		c.bad("%s: certificate %s: %v", r.Identity, i.Serial, err)
		return
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: c.roots, Intermediates: c.between,
		CurrentTime: leaf.NotBefore.Add(time.Second),
		KeyUsages:   []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		c.bad("%s: certificate %s: %v", r.Identity, i.Serial, err)
	}
	if serial := serialOf(leaf); serial != i.Serial || keyHash(leaf.PublicKey) != i.KeyHash ||
		!slices.Equal(leaf.DNSNames, []string{r.Identity}) {
		c.bad("%s: certificate %s is %s of %v, of another key than on record: %v", r.Identity, i.Serial, serial,
			leaf.DNSNames, keyHash(leaf.PublicKey) != i.KeyHash)
	}
}

// claims takes one entry of a limited token's log into account.
func (c *checker) claims(m stored) {
	c.t.Helper()
	tid := strings.TrimPrefix(m.subject, "muster.claims.")
	var e claims
	if err := json.Unmarshal(m.data, &e); err != nil {
		c.bad("%s at %d: %v", m.subject, m.sequence, err)
		return
	}
	if c.held[tid] == nil {
		c.held[tid] = map[string]map[string]bool{}
	}
	if e.Token != nil {
		c.limits[tid] = e.Token.Uses
	}
	h := c.held[tid]
	for _, r := range e.Releases {
		delete(h[r.holder()], r.Attempt)
		if r.All || len(h[r.holder()]) == 0 {
			delete(h, r.holder())
		}
	}
	for _, claim := range e.Claims {
		if h[claim.holder()] == nil {
			h[claim.holder()] = map[string]bool{}
		}
		if h[claim.holder()][claim.Attempt] {
			c.bad("claims of %s at %d: attempt %s claims twice", tid, m.sequence, claim.Attempt)
		}
		h[claim.holder()][claim.Attempt] = true
	}
	c.most[tid] = max(c.most[tid], len(h))
	if len(h) > c.limits[tid] {
		c.bad("claims of %s at %d: %d uses are held, the limit is %d", tid, m.sequence, len(h), c.limits[tid])
	}
}

// uses compares the certificates from limited tokens with the claims.
func (c *checker) uses() {
	c.t.Helper()
	for tid, limit := range c.limits {
		if got := len(c.certified[tid]); got > limit {
			c.bad("token %s: %d keys have a certificate, the limit is %d", tid, got, limit)
		}
		for _, holder := range slices.Sorted(maps.Keys(c.certified[tid])) {
			if c.held[tid][holder] == nil {
				c.bad("token %s: %s has a certificate and holds no use", tid, holder)
			}
		}
	}
}

// disk compares a node's disk with its record. It reports whether the node is
// provisioned.
func (c *checker) disk(identity, dir string) bool {
	c.t.Helper()
	r := c.last[identity]
	b, err := os.ReadFile(filepath.Join(dir, certFile))
	if errors.Is(err, fs.ErrNotExist) {
		if r != nil && r.Current != nil {
			c.bad("%s: on record is certificate %s, on its disk none", identity, r.Current.Serial)
		}
		return false
	}
	if err != nil {
		c.bad("%v", err)
		return false
	}
	leaf, err := parseCertificate(b)
	if err != nil {
		c.bad("%s: %v", identity, err)
		return false
	}
	key, err := readKey(filepath.Join(dir, keyFile))
	if err != nil {
		c.bad("%s: %v", identity, err)
		return false
	}
	if pub, ok := leaf.PublicKey.(*ecdsa.PublicKey); !ok || !pub.Equal(key.Public()) {
		c.bad("%s: its certificate is not for its key", identity)
	}
	serial := serialOf(leaf)
	switch {
	case r == nil:
		c.bad("%s: has certificate %s and no record", identity, serial)
		return false
	case !offered(r, serial):
		c.bad("%s: has certificate %s, on record are %s", identity, serial, r.live())
		return false
	case r.State != "provisioned" || r.Next != nil || r.Current.Serial != serial ||
		r.Current.KeyHash != keyHash(key.Public()):
		return false
	}
	return true
}

// live describes the certificates of a record.
func (r *record) live() string {
	text := r.State
	for what, i := range map[string]*issued{"current": r.Current, "next": r.Next} {
		if i != nil {
			text += fmt.Sprintf(" %s %s", what, i.Serial)
		}
	}
	return text
}

func serialOf(leaf *x509.Certificate) string { return leaf.SerialNumber.Text(16) }

// keyHash returns a key's fingerprint as in records.
func keyHash(pub any) string {
	der, err := x509.MarshalPKIXPublicKey(pub)
	if err != nil {
		return err.Error()
	}
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:])
}
