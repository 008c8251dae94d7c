package policies

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
)

// value returns in as Rego's input, of which it makes only what s selects. But
// for that it is what decoding its JSON gives, in a fraction of the time.
func (in *Input) value(s *selection) (ast.Value, error) {
	o := object{s: s}
	o.text("identity", in.Identity)
	o.object("token", in.Token.fill)
	o.object("csr", in.CSR.fill)
	o.facts(in.Facts)
	o.object("node", in.Node.fill)
	if in.Allow != nil {
		o.object("allow", in.Allow.fill)
	} else {
		o.json("allow", nil)
	}
	o.object("source", in.Source.fill)
	o.object("provisioner", in.Provisioner.fill)
	o.json("evidence", in.Evidence)
	o.time("time", in.Time)
	return ast.NewObject(o.members...), o.err
}

func (t *Token) fill(o *object) {
	o.text("id", t.ID)
	o.text("signer", t.Signer)
	o.text("issuer", t.Issuer)
	o.text("org", t.Org)
	o.text("site", t.Site)
	o.texts("identities", t.Identities)
	o.number("uses", t.Uses)
	o.json("extensions", orObject(t.Extensions))
	o.timeIfAny("issued_at", t.IssuedAt)
	o.timeIfAny("expires_at", t.ExpiresAt)
	o.flag("secure", t.Secure)
	o.texts("urls", t.URLs)
	o.text("srv_domain", t.SRVDomain)
	o.flag("default", t.Default)
}

func (c *CSR) fill(o *object) {
	o.text("common_name", c.CommonName)
	o.texts("dns_names", c.DNSNames)
	o.texts("ip_addresses", c.IPAddresses)
	o.texts("uris", c.URIs)
	o.texts("emails", c.Emails)
	o.object("key", c.Key.fill)
}

func (k *Key) fill(o *object) {
	o.text("type", k.Type)
	o.text("hash", k.Hash)
}

func (n *Node) fill(o *object) {
	o.text("state", n.State)
	o.text("reason", n.Reason)
	o.text("serial", n.Serial)
	o.flag("cloned", n.Cloned)
	o.timeIfAny("provisioned_at", n.ProvisionedAt)
	o.timeIfAny("expires_at", n.ExpiresAt)
}

func (e *AllowEntry) fill(o *object) {
	o.text("pattern", e.Pattern)
	o.text("comment", e.Comment)
	o.timeIfAny("expires_at", e.ExpiresAt)
}

func (s *Source) fill(o *object) {
	o.text("address", s.Address)
	o.text("site", s.Site)
}

func (p *Provisioner) fill(o *object) {
	o.text("site", p.Site)
	o.text("version", p.Version)
}

// An object is one in the making: of each member that it is given it takes what
// is selected.
type object struct {
	s       *selection
	members [][2]*ast.Term
	err     error // the first
}

func (o *object) add(name string, below *selection, value *ast.Term) {
	o.members = append(o.members, [2]*ast.Term{o.s.nameOf(name, below), value})
}

// object adds the object that fill fills. Nothing in it that fails does so
// unseen, selected or not.
func (o *object) object(name string, fill func(*object)) {
	below := object{s: o.s.member(name)}
	fill(&below)
	if below.s != nil {
		o.add(name, below.s, ast.NewTerm(ast.NewObject(below.members...)))
	}
	o.fail(name, below.err)
}

func (o *object) fail(name string, err error) {
	if err != nil && o.err == nil {
		o.err = fmt.Errorf("%s: %w", name, err)
	}
}

func (o *object) text(name, text string) {
	if s := o.s.member(name); s != nil {
		o.add(name, s, ast.StringTerm(text))
	}
}

func (o *object) flag(name string, v bool) {
	if s := o.s.member(name); s != nil {
		o.add(name, s, ast.InternedTerm(v))
	}
}

func (o *object) number(name string, v int) {
	if s := o.s.member(name); s != nil {
		o.add(name, s, ast.NumberTerm(json.Number(strconv.Itoa(v))))
	}
}

func (o *object) texts(name string, texts []string) {
	selected := o.s.member(name)
	if selected == nil {
		return
	}
	terms := make([]*ast.Term, len(texts))
	for i, s := range texts {
		terms[i] = ast.StringTerm(s)
	}
	o.add(name, selected, ast.ArrayTerm(terms...))
}

func (o *object) time(name string, t time.Time) {
	t = t.UTC()
	if y := t.Year(); y < 0 || y > 9999 { // RFC 3339 section 1
		o.fail(name, fmt.Errorf("year %d, want 0 to 9999", y))
		return
	}
	if s := o.s.member(name); s != nil {
		o.add(name, s, ast.StringTerm(t.Format(time.RFC3339Nano)))
	}
}

// timeIfAny is time, but for a zero time, which makes no member.
func (o *object) timeIfAny(name string, t time.Time) {
	if !t.IsZero() {
		o.time(name, t)
	}
}

// json adds what is selected of a document, null for an empty text.
func (o *object) json(name string, text json.RawMessage) {
	s := o.s.member(name)
	if len(text) == 0 {
		if s != nil {
			o.add(name, s, ast.InternedNullTerm)
		}
		return
	}
	t, err := s.of(text)
	o.fail(name, err)
	if t != nil {
		o.add(name, s, t)
	}
}

// facts adds what is selected of the facts, which are nil, for none, or must be
// one JSON object.
func (o *object) facts(text json.RawMessage) {
	text = orObject(text)
	if bytes.TrimLeft(text, " \t\r\n")[0] != '{' { // orObject leaves something
		o.fail("facts", errors.New("not a JSON object"))
		return
	}
	o.json("facts", text)
}
