package policies

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"sync/atomic"
	"time"
)

// A lineWriter appends what JSON writes as it is. It is to be thrown away once it
// has come to anything unusual; what it wrote by then is good for nothing.
type lineWriter struct {
	b       []byte
	unusual bool
}

// recording appends r as json.Marshal does, but for the facts: members in the order
// of the types, so that a test can hold both to each other byte for byte.
func (w *lineWriter) recording(r *Recording) {
	w.b = append(w.b, `{"input":`...)
	w.input(r.Input)
	w.text(`,"verdict":`, string(r.Verdict))
	w.textsIfAny(`,"reasons":`, r.Reasons)
	if r.TTL != 0 {
		w.b = strconv.AppendInt(append(w.b, `,"ttl_ns":`...), int64(r.TTL), 10)
	}
	w.textsIfAny(`,"dns_names":`, r.DNSNames)
	w.flagIfSet(`,"server_auth":`, r.ServerAuth)
	if r.Configuration != "" {
		w.text(`,"configuration":`, r.Configuration)
	}
	w.text(`,"policy":`, r.Policy)
	w.flagIfSet(`,"redacted":`, r.Redacted)
	w.b = append(w.b, '}')
}

func (w *lineWriter) input(in *Input) {
	if len(in.Evidence) > 0 {
		w.unusual = true
		return
	}
	w.text(`{"identity":`, in.Identity)
	w.token(&in.Token)
	w.text(`,"csr":{"common_name":`, in.CSR.CommonName)
	w.texts(`,"dns_names":`, in.CSR.DNSNames)
	w.texts(`,"ip_addresses":`, in.CSR.IPAddresses)
	w.texts(`,"uris":`, in.CSR.URIs)
	w.texts(`,"emails":`, in.CSR.Emails)
	w.text(`,"key":{"type":`, in.CSR.Key.Type)
	w.text(`,"hash":`, in.CSR.Key.Hash)
	w.b = appendFacts(append(w.b, `}},"facts":`...), in.Facts)
	w.text(`,"node":{"state":`, in.Node.State)
	w.text(`,"reason":`, in.Node.Reason)
	w.text(`,"serial":`, in.Node.Serial)
	w.flag(`,"cloned":`, in.Node.Cloned)
	w.timeIfAny(`,"provisioned_at":`, in.Node.ProvisionedAt)
	w.timeIfAny(`,"expires_at":`, in.Node.ExpiresAt)
	if in.Allow == nil {
		w.b = append(w.b, `},"allow":null`...)
	} else {
		w.text(`},"allow":{"pattern":`, in.Allow.Pattern)
		w.text(`,"comment":`, in.Allow.Comment)
		w.timeIfAny(`,"expires_at":`, in.Allow.ExpiresAt)
		w.b = append(w.b, '}')
	}
	w.text(`,"source":{"address":`, in.Source.Address)
	w.text(`,"site":`, in.Source.Site)
	w.text(`},"provisioner":{"site":`, in.Provisioner.Site)
	w.text(`,"version":`, in.Provisioner.Version)
	w.time(`},"evidence":null,"time":`, in.Time)
	w.b = append(w.b, '}')
}

func (w *lineWriter) token(t *Token) {
	w.text(`,"token":{"id":`, t.ID)
	w.text(`,"signer":`, t.Signer)
	w.text(`,"issuer":`, t.Issuer)
	w.text(`,"org":`, t.Org)
	w.text(`,"site":`, t.Site)
	w.texts(`,"identities":`, t.Identities)
	w.b = strconv.AppendInt(append(w.b, `,"uses":`...), int64(t.Uses), 10)
	w.b = append(w.b, `,"extensions":`...)
	w.extensions(t.Extensions)
	w.timeIfAny(`,"issued_at":`, t.IssuedAt)
	w.timeIfAny(`,"expires_at":`, t.ExpiresAt)
	w.flag(`,"secure":`, t.Secure)
	w.texts(`,"urls":`, t.URLs)
	w.text(`,"srv_domain":`, t.SRVDomain)
	w.flag(`,"default":`, t.Default)
	w.b = append(w.b, '}')
}

// compactExtensions is what was last found to be written as it is. The nodes of
// one token share its extensions.
var compactExtensions atomic.Pointer[json.RawMessage]

// extensions appends the extensions of a token, which json.Marshal looks through
// for blanks and for what it escapes.
func (w *lineWriter) extensions(e json.RawMessage) {
	e = orObject(e)
	if last := compactExtensions.Load(); last == nil || !bytes.Equal(*last, e) {
		written, err := json.Marshal(e)
		if err != nil || !bytes.Equal(written, e) {
			w.unusual = true
			return
		}
		compactExtensions.Store((*json.RawMessage)(&written))
	}
	w.b = append(w.b, e...)
}

// text appends a member. JSON escapes nothing of ASCII but quotes, backslashes and
// what is not printed, and json.Marshal three characters of HTML's more.
func (w *lineWriter) text(name, s string) {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c >= 0x7f || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			w.unusual = true
			return
		}
	}
	w.b = append(append(append(append(w.b, name...), '"'), s...), '"')
}

// texts appends a list, empty rather than null.
func (w *lineWriter) texts(name string, list []string) {
	w.b = append(append(w.b, name...), '[')
	for i, s := range list {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		w.text("", s)
	}
	w.b = append(w.b, ']')
}

func (w *lineWriter) textsIfAny(name string, list []string) {
	if len(list) > 0 {
		w.texts(name, list)
	}
}

func (w *lineWriter) flag(name string, set bool) {
	w.b = strconv.AppendBool(append(w.b, name...), set)
}

func (w *lineWriter) flagIfSet(name string, set bool) {
	if set {
		w.flag(name, set)
	}
}

// time appends a member in UTC. [time.Time.MarshalJSON] refuses other years.
func (w *lineWriter) time(name string, t time.Time) {
	if t = t.UTC(); t.Year() < 0 || t.Year() > 9999 {
		w.unusual = true
		return
	}
	w.b = append(append(w.b, name...), '"')
	w.b = append(t.AppendFormat(w.b, time.RFC3339Nano), '"')
}

func (w *lineWriter) timeIfAny(name string, t time.Time) {
	if !t.IsZero() {
		w.time(name, t)
	}
}

// values appends an object, in the order of its keys.
func (w *lineWriter) values(object map[string]string) {
	var room [64]string
	keys := room[:0]
	for key := range object {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	w.b = append(w.b, '{')
	for i, key := range keys {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		w.text("", key)
		w.text(":", object[key])
	}
	w.b = append(w.b, '}')
}
