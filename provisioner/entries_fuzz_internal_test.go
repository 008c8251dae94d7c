package provisioner

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"muster/internal/wire"
)

// An entry is what a store or a journal has of an operator's word, and whoever waits.
type entry interface{ Check() error }

// entries are one of each kind, made anew.
func entries() []entry {
	return []entry{
		new(Answer), new(Allowance), new(Pause), new(Revocation), new(OperatorEntry), new(SignerEntry), new(CRL), new(ClaimEntry), new(Waiter), new(Component),
	}
}

// FuzzEntries checks that no entry that a store could hold panics who reads it, that what is
// wrong with one is said shortly, and that one that counts is the same once written again.
func FuzzEntries(f *testing.F) {
	at, hash := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), strings.Repeat("0a", 32)
	cause := Cause{By: "operator:anna", Why: "a reason"}
	for i, e := range []entry{
		&Answer{Schema: AnswerSchema, ID: "a", Identity: "web1.example.net", KeyHash: hash, Verdict: VerdictApprove, At: at, ExpiresAt: at.Add(time.Hour), Cause: cause},
		&Allowance{Schema: AllowanceSchema, ID: "a", Pattern: "web*.example.net", Uses: 2, At: at, Cause: cause, UsedBy: []AllowanceUse{{Identity: "web1.example.net", KeyHash: hash, At: at}}},
		&Pause{Schema: PauseSchema, Site: "ams1", At: at, Cause: cause},
		&Revocation{Schema: RevocationSchema, ID: "a", Kind: RevokedNode, At: at, By: "anna", Node: "web1.example.net", Certificates: []RevokedCertificate{{Serial: "0a", NotAfter: at, Issuer: "0b"}}, Keys: []string{hash}},
		&OperatorEntry{Schema: OperatorSchema, Name: "anna", Removed: true, By: "root", At: at},
		&SignerEntry{Schema: SignerSchema, ID: "a", Name: "build", Removed: true, By: "root", At: at},
		&CRL{Schema: CRLSchema, Issuer: "0b", Number: 7, DER: []byte{0x30, 0}, ThisUpdate: at, NextUpdate: at.Add(time.Hour)},
		&ClaimEntry{Schema: ClaimSchema, Claims: []TokenClaim{{Key: "k", Identity: "web1.example.net", Attempt: "a", At: at}}},
		&Waiter{Schema: WaiterSchema, Identity: "web1.example.net", KeyHash: hash, Code: wire.CodeDeferred, Facts: map[string]string{"role": "web"}, Since: at, LastAsked: at, Asked: 1},
		&Component{Schema: ComponentSchema, Name: "prov1", Features: []Feature{{Name: "ca", State: FeatureRunning}}},
	} {
		b, err := json.Marshal(e)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(byte(i), b)
	}
	f.Add(byte(0), []byte(`null`))
	f.Add(byte(1), []byte(`{"stream":"MUSTER_EVENTS","seq":3}`))
	f.Fuzz(func(t *testing.T, kind byte, b []byte) {
		e, again := entries()[int(kind)%len(entries())], entries()[int(kind)%len(entries())]
		if json.Unmarshal(b, e) != nil {
			return
		}
		if err := e.Check(); err != nil {
			if n := len(err.Error()); n > 2000 {
				t.Fatalf("%T: %d bytes say what is wrong: %.200s", e, n, err)
			}
			return
		}
		once, err := json.Marshal(e)
		if err != nil {
			return // a year beyond 9999, which no entry of ours has
		}
		if err := json.Unmarshal(once, again); err != nil {
			t.Fatalf("%T: our own encoding is refused: %v", e, err)
		}
		if err := again.Check(); err != nil {
			t.Fatalf("%T: what counted does not once it is written again: %v", e, err)
		}
		if twice, err := json.Marshal(again); err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("%T: %s became %s, %v", e, once, twice, err)
		}
	})
}

// FuzzCause checks that a cause that an order may have is one that an entry may have: it is
// what was given, also once it was written down.
func FuzzCause(f *testing.F) {
	f.Add("operator:anna", "a reason")
	f.Add("operator:anna", strings.Repeat("\xff", 100))
	f.Add("", strings.Repeat("x", 201))
	f.Fuzz(func(t *testing.T, by, why string) {
		c := Cause{By: by, Why: why}
		if c.Check() != nil {
			return
		}
		b, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		var read Cause
		if err := json.Unmarshal(b, &read); err != nil || read != c || read.Check() != nil {
			t.Fatalf("%q became %q, %v, %v", c, read, err, read.Check())
		}
	})
}

// FuzzParsePlace checks that a place in the log of events is the same once written again.
func FuzzParsePlace(f *testing.F) {
	for _, s := range []string{"0-0-0-0", "1-2", "18446744073709551615-1-1-1", "18446744073709551616-1", "-1-1", "1-1-1", "+1-1", " 1-1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParsePlace(s)
		if err != nil {
			if p != (Place{}) || len(err.Error()) > 1000 || strings.Contains(err.Error(), "\n") {
				t.Fatalf("%q: %v, %v", s, p, err)
			}
			return
		}
		if again, err := ParsePlace(p.String()); err != nil || again != p {
			t.Fatalf("%q is %v, and that is %v, %v", s, p, again, err)
		}
	})
}
