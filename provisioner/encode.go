package provisioner

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"sync/atomic"
	"time"
)

// recordBytes is what a record takes without its certificates and terms: chosen,
// two thirds of it are used with two certificates. What is longer grows.
const recordBytes = 1 << 11

// Encode returns the record as [json.Marshal] does, byte for byte. Records of
// nearly all nodes hold nothing that JSON escapes, and those are written here,
// without reflection, in half of the time: a node has two written. The error is one of [json.Marshal].
func (r *Record) Encode() ([]byte, error) {
	size := recordBytes + len(r.Terms)
	for _, i := range []*Issued{r.Current, r.Next} {
		if i != nil {
			size += base64.StdEncoding.EncodedLen(len(i.DER))
		}
	}
	w := recordWriter{b: make([]byte, 0, size)}
	w.record(r)
	if w.unusual {
		return json.Marshal(r)
	}
	return w.b, nil
}

// AppendJSON appends the members of the event as [json.Marshal] writes them, byte for
// byte, without reflection: a node that is provisioned makes two events. It reports false
// if there is something in them that JSON escapes; what it returns is of no use then.
func (e *Event) AppendJSON(b []byte) ([]byte, bool) {
	w, start := recordWriter{b: b}, len(b)
	w.textIfAny(`,"node":`, e.Node)
	w.textIfAny(`,"code":`, string(e.Code))
	w.textIfAny(`,"cause":`, e.Cause)
	w.textIfAny(`,"reason":`, string(e.Reason))
	w.textIfAny(`,"key_hash":`, e.Key)
	w.textIfAny(`,"serial":`, e.Serial)
	w.textIfAny(`,"digest":`, e.Digest)
	w.textIfAny(`,"pattern":`, string(e.Pattern))
	w.textIfAny(`,"token_id":`, string(e.Token))
	w.textIfAny(`,"signer":`, string(e.Signer))
	w.textIfAny(`,"site":`, string(e.Site))
	w.textIfAny(`,"source":`, e.Source)
	w.trueIfSo(`,"sealed":`, e.Sealed)
	w.textIfAny(`,"attempt":`, e.Attempt)
	w.textIfAny(`,"policy":`, e.Policy)
	w.numberIfAny(`,"elapsed_ns":`, int64(e.Elapsed))
	w.numberIfAny(`,"left_out":`, e.LeftOut)
	w.numberIfAny(`,"of_source":`, e.OfSource)
	w.textIfAny(`,"operator":`, e.Operator)
	w.textIfAny(`,"role":`, string(e.Role))
	w.textIfAny(`,"verb":`, string(e.Verb))
	w.textIfAny(`,"command":`, e.Command)
	w.textIfAny(`,"by":`, e.By)
	w.textIfAny(`,"why":`, e.Why)
	w.trueIfSo(`,"renewals":`, e.Renewals)
	w.trueIfSo(`,"repeated":`, e.Repeated)
	if len(w.b) == start {
		w.b = append(w.b, ',')
	}
	w.b[start] = '{' // in place of the first member's comma
	return append(w.b, '}'), !w.unusual
}

// A recordWriter appends what is written as it is. It is to be thrown away once
// it has come to anything unusual.
type recordWriter struct {
	b       []byte
	unusual bool
}

func (w *recordWriter) record(r *Record) {
	w.unusual = r.Operator != nil || r.Approval != nil || r.Cloned != nil || len(r.Superseded) > 0 || r.Lineage == nil
	w.b = strconv.AppendInt(append(w.b, `{"schema":`...), int64(r.Schema), 10)
	w.text(`,"identity":`, string(r.Identity))
	w.text(`,"state":`, string(r.State))
	w.issued(`,"current":`, r.Current)
	w.issued(`,"next":`, r.Next)
	w.texts(`,"lineage":`, r.Lineage)
	w.text(`,"attempt":`, r.Attempt)
	w.textIfAny(`,"grant":`, r.Grant)
	if r.RevokedThrough != 0 {
		w.b = strconv.AppendUint(append(w.b, `,"revoked_through":`...), uint64(r.RevokedThrough), 10)
	}
	w.timeIfAny(`,"owned_since":`, r.OwnedSince)
	w.textIfAny(`,"tid":`, string(r.Token))
	w.textIfAny(`,"signer":`, string(r.Signer))
	w.textIfAny(`,"site":`, string(r.Site))
	w.textIfAny(`,"source":`, r.Source)
	w.terms(r.Terms)
	if len(r.CommandKey) > 0 {
		w.b = append(base64.StdEncoding.AppendEncode(append(w.b, `,"command_key":"`...), r.CommandKey), '"')
	}
	w.textIfAny(`,"agent":`, r.Agent)
	w.textIfAny(`,"boot":`, r.Boot)
	w.facts(r.Facts)
	w.text(`,"decision":{"reason":`, string(r.Decision.Reason))
	if len(r.Decision.Notes) > 0 {
		w.texts(`,"notes":`, r.Decision.Notes)
	}
	w.textIfAny(`,"policy":`, r.Decision.Policy)
	w.textIfAny(`,"allowed":`, r.Decision.Allowed)
	w.b = append(w.b, '}')
	w.time(`,"first_enrolled_at":`, r.FirstEnrolledAt)
	w.timeIfAny(`,"provisioned_at":`, r.ProvisionedAt)
	w.time(`,"updated_at":`, r.UpdatedAt)
	w.b = append(w.b, '}')
}

func (w *recordWriter) issued(name string, i *Issued) {
	if i == nil {
		return
	}
	if i.DER == nil || i.Barred {
		w.unusual = true // null, or seldom
	}
	w.b = append(w.b, name...)
	w.text(`{"serial":`, i.Serial)
	w.text(`,"key_hash":`, i.KeyHash)
	w.b = append(w.b, `,"der":"`...)
	w.b = append(base64.StdEncoding.AppendEncode(w.b, i.DER), '"')
	w.time(`,"not_before":`, i.NotBefore)
	w.time(`,"not_after":`, i.NotAfter)
	w.text(`,"digest":`, i.Digest)
	w.time(`,"offered_at":`, i.OfferedAt)
	w.b = append(w.b, '}')
}

// text appends a member. JSON escapes nothing of ASCII but quotes, backslashes
// and what is not printed, and [json.Marshal] three characters of HTML's more.
func (w *recordWriter) text(name, s string) {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c >= 0x7f || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			w.unusual = true
		}
	}
	w.b = append(append(append(append(w.b, name...), '"'), s...), '"')
}

func (w *recordWriter) textIfAny(name, s string) {
	if s != "" {
		w.text(name, s)
	}
}

func (w *recordWriter) numberIfAny(name string, n int64) {
	if n != 0 {
		w.b = strconv.AppendInt(append(w.b, name...), n, 10)
	}
}

func (w *recordWriter) trueIfSo(name string, so bool) {
	if so {
		w.b = append(append(w.b, name...), "true"...)
	}
}

func (w *recordWriter) texts(name string, list []string) {
	w.b = append(append(w.b, name...), '[')
	for i, s := range list {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		w.text("", s)
	}
	w.b = append(w.b, ']')
}

// facts appends facts, if there are any. Ours are in order.
func (w *recordWriter) facts(facts Facts) {
	if len(facts) == 0 {
		return
	}
	w.b = append(w.b, `,"facts":`...)
	before := "{"
	for i, f := range facts {
		w.unusual = w.unusual || i > 0 && f.Name <= facts[i-1].Name
		w.text(before, f.Name)
		w.text(":", f.Value)
		before = ","
	}
	w.b = append(w.b, '}')
}

// time appends a member. [time.Time.MarshalJSON] refuses other years and zones
// than RFC 3339 has; ours are in UTC.
func (w *recordWriter) time(name string, t time.Time) {
	if t.Location() != time.UTC || t.Year() < 0 || t.Year() > 9999 {
		w.unusual = true
		return
	}
	w.b = append(append(w.b, name...), '"')
	w.b = append(t.AppendFormat(w.b, time.RFC3339Nano), '"')
}

func (w *recordWriter) timeIfAny(name string, t time.Time) {
	if !t.IsZero() {
		w.time(name, t)
	}
}

// compactTerms is what was last found to be written as it is. The nodes of one
// token share their terms.
var compactTerms atomic.Pointer[[]byte]

// terms appends the terms of the token, which [json.Marshal] looks through for
// blanks and for what it escapes.
func (w *recordWriter) terms(t json.RawMessage) {
	if len(t) == 0 {
		return
	}
	if last := compactTerms.Load(); last == nil || !bytes.Equal(*last, t) {
		written, err := json.Marshal(t)
		if err != nil || !bytes.Equal(written, t) {
			w.unusual = true
			return
		}
		compactTerms.Store(&written)
	}
	w.b = append(append(w.b, `,"terms":`...), t...)
}
