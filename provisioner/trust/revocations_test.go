package trust_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"muster/internal/wire"
	"muster/provisioner/trust"
)

// memoryLog is a log in memory.
type memoryLog[V any] struct {
	entries map[string]trust.Entry[V]
	watched []func(string, trust.Entry[V])
	last    trust.Revision
}

func (l *memoryLog[V]) Get(key string) (trust.Entry[V], bool) {
	e, ok := l.entries[key]
	return e, ok
}

func (l *memoryLog[V]) All() iter.Seq2[string, trust.Entry[V]] {
	return func(yield func(string, trust.Entry[V]) bool) {
		for key, e := range l.entries {
			if !yield(key, e) {
				return
			}
		}
	}
}

// newest returns the newest revision of the keys that a scope covers.
func (l *memoryLog[V]) newest(scope string) (at trust.Revision) {
	prefix, wild := strings.CutSuffix(scope, "*")
	for key, e := range l.entries {
		if key == scope || wild && strings.HasPrefix(key, prefix) {
			at = max(at, e.Revision)
		}
	}
	return at
}

func (l *memoryLog[V]) Put(_ context.Context, key string, v V, expected trust.Revision) (trust.Revision, error) {
	if l.newest(trust.RevocationScope(key)) != expected {
		return 0, trust.ErrConflict
	}
	return l.put(key, trust.Entry[V]{Value: v}), nil
}

func (l *memoryLog[V]) put(key string, e trust.Entry[V]) trust.Revision {
	if l.entries == nil {
		l.entries = make(map[string]trust.Entry[V])
	}
	l.last++
	e.Revision = l.last
	l.entries[key] = e
	for _, applied := range l.watched {
		applied(key, e)
	}
	return e.Revision
}

func (l *memoryLog[V]) Watch(applied func(string, trust.Entry[V])) {
	for at := trust.Revision(1); at <= l.last; at++ {
		for key, e := range l.entries {
			if e.Revision == at {
				applied(key, e)
			}
		}
	}
	l.watched = append(l.watched, applied)
}

const web1 wire.Identity = "web1.example.net"

func nodeEntry(id string, kind trust.RevocationKind, serial, key string) *trust.Revocation {
	e := &trust.Revocation{
		Schema:       trust.RevocationSchema,
		ID:           id,
		Kind:         kind,
		By:           "operator",
		Node:         web1,
		Certificates: []trust.RevokedCertificate{{Serial: serial, Issuer: "aa"}},
	}
	if key != "" {
		e.Keys = []string{key}
	}
	return e
}

// TestEntriesInForce applies entries and checks what is revoked.
func TestEntriesInForce(t *testing.T) {
	t.Parallel()
	revoke, again := nodeEntry("r", trust.RevokedNode, "1", "k1"), nodeEntry("s", trust.RevokedNode, "2", "k2")
	retire, later := nodeEntry("t", trust.RetiredNode, "3", ""), nodeEntry("u", trust.RevokedNode, "4", "k1")
	other := nodeEntry("o", trust.RevokedNode, "5", "k1")
	other.Node = "web2.example.net"
	for name, tt := range map[string]struct {
		entries []*trust.Revocation
		keys    string          // revoked ones of k1 and k2
		serials string          // revoked ones of 1 to 4
		out     map[string]bool // by the entry that the record has followed: whether another entry keeps the node out
	}{
		"nothing": {nil, "", "", map[string]bool{"": false}},
		"revoked": {[]*trust.Revocation{revoke}, "k1", "1",
			map[string]bool{"": true, "unknown": true, "r": false}},
		"revoked twice": {[]*trust.Revocation{revoke, again}, "k1k2", "12",
			map[string]bool{"r": true, "s": false}},
		"retired": {[]*trust.Revocation{revoke, retire}, "", "13",
			map[string]bool{"": false, "r": false}},
		"retired, then revoked": {[]*trust.Revocation{retire, later}, "k1", "34",
			map[string]bool{"": true, "t": true, "u": false}},
		"a retirement leaves other nodes' keys": {[]*trust.Revocation{other, revoke, retire}, "k1", "13",
			map[string]bool{"t": false}},
	} {
		for _, before := range []bool{false, true} { // whether the entries are there at the start
			log := &memoryLog[*trust.Revocation]{}
			r := trust.NewRevocations(trust.RevocationsConfig{Log: log})
			for _, e := range tt.entries {
				_, newest := r.About(e.Node)
				if err := r.Put(t.Context(), e, newest); err != nil {
					t.Fatal(err)
				}
			}
			if before {
				r = trust.NewRevocations(trust.RevocationsConfig{Log: log})
			}
			keys, serials := "", ""
			for _, k := range []string{"k1", "k2"} {
				if r.Key(k) != nil {
					keys += k
				}
			}
			for _, s := range []string{"1", "2", "3", "4"} {
				if r.Serial(s) != nil {
					serials += s
				}
			}
			if keys != tt.keys || serials != tt.serials {
				t.Errorf("%s: revoked are keys %q and certificates %q, want %q and %q", name, keys, serials, tt.keys,
					tt.serials)
			}
			for followed, want := range tt.out {
				if by := r.Outstanding(web1, followed); (by != nil) != want {
					t.Errorf("%s: a record that has followed %q is kept out by %v, want %v", name, followed, by, want)
				}
			}
		}
	}
}

// TestKeyThatLostANameIsRefusedForIt hands a name over twice, and retires it.
func TestKeyThatLostANameIsRefusedForIt(t *testing.T) {
	t.Parallel()
	r := trust.NewRevocations(trust.RevocationsConfig{Log: &memoryLog[*trust.Revocation]{}})
	give := func(id, from, to string) *trust.Revocation {
		e := nodeEntry(id, trust.HandedOver, "", from)
		e.Certificates, e.To = nil, to
		return e
	}
	for _, tt := range []struct {
		e    *trust.Revocation
		lost string // of k1 and k2
	}{
		{give("a", "k1", "k2"), "k1"},
		{give("b", "k2", "k1"), "k2"}, // back again
		{nodeEntry("t", trust.RetiredNode, "3", ""), ""},
	} {
		_, newest := r.About(web1)
		if err := r.Put(t.Context(), tt.e, newest); err != nil {
			t.Fatal(err)
		}
		lost := ""
		for _, k := range []string{"k1", "k2"} {
			if r.Lost(web1, k) != nil {
				lost += k
			}
			if r.Key(k) != nil || r.Lost("web2.example.net", k) != nil {
				t.Errorf("after %s: %s is refused for other names", tt.e.ID, k)
			}
		}
		if lost != tt.lost {
			t.Errorf("after %s: %q lost the name, want %q", tt.e.ID, lost, tt.lost)
		}
	}
}

// memoryJournal is a journal in memory that can fail.
type memoryJournal struct {
	entries []*trust.Revocation
	fails   error
}

func (j *memoryJournal) Append(entries ...*trust.Revocation) error {
	if j.fails != nil {
		return j.fails
	}
	for _, e := range entries {
		if !slices.Contains(j.ids(), e.ID) {
			j.entries = append(j.entries, e)
		}
	}
	return nil
}

func (j *memoryJournal) Entries() []*trust.Revocation { return j.entries }

func (j *memoryJournal) ids() (ids []string) {
	for _, e := range j.entries {
		ids = append(ids, e.ID)
	}
	return ids
}

// TestJournalAndLogAreMerged starts on a restored store: the log gets the journal's entries in their order, and the
// journal those of other processes.
func TestJournalAndLogAreMerged(t *testing.T) {
	t.Parallel()
	revoke, retire := nodeEntry("r", trust.RevokedNode, "1", "k1"), nodeEntry("t", trust.RetiredNode, "3", "")
	journal := &memoryJournal{entries: []*trust.Revocation{revoke, retire}}
	log := &memoryLog[*trust.Revocation]{}
	other := nodeEntry("o", trust.RevokedNode, "5", "k5")
	other.Node = "web2.example.net"
	log.put(other.LogKey(), trust.Entry[*trust.Revocation]{Value: other})
	for range 2 { // repeating it changes nothing
		r := trust.NewRevocations(trust.RevocationsConfig{Log: log, Journal: journal})
		if err := r.Restore(t.Context()); err != nil {
			t.Fatal(err)
		}
		if e, _ := r.About(web1); e == nil || e.ID != "t" || r.Serial("1") == nil || r.Key("k1") != nil {
			t.Errorf("about the node: %+v", e)
		}
	}
	if got := fmt.Sprint(journal.ids()); got != "[r t o]" || log.last != 3 {
		t.Errorf("the journal has %s, the log %d entries, want r, t and o", got, log.last)
	}
}

// TestOrderIsAnsweredAfterTheJournal has the journal fail: the order is in force, and journaled later.
func TestOrderIsAnsweredAfterTheJournal(t *testing.T) {
	t.Parallel()
	full := errors.New("disk is full")
	journal := &memoryJournal{fails: full}
	r := trust.NewRevocations(trust.RevocationsConfig{Log: &memoryLog[*trust.Revocation]{}, Journal: journal})
	if err := r.Put(t.Context(), nodeEntry("r", trust.RevokedNode, "1", "k1"), 0); !errors.Is(err, full) ||
		r.Key("k1") == nil {
		t.Errorf("Put = %v, and the key is revoked by %v", err, r.Key("k1"))
	}
	journal.fails = nil
	if err := r.WriteJournal(); err != nil || fmt.Sprint(journal.ids()) != "[r]" {
		t.Errorf("the journal has %v, %v", journal.ids(), err)
	}
}

// TestServiceCertificatesAreRevokedAlone revokes some besides entries about their node, in any order and again from a
// journal. The node's name and keys go on.
func TestServiceCertificatesAreRevokedAlone(t *testing.T) {
	t.Parallel()
	one, more := nodeEntry("c", trust.RevokedService, "7", ""), nodeEntry("d", trust.RevokedService, "8", "")
	one.Name = "https"
	handover := nodeEntry("h", trust.HandedOver, "1", "k1")
	handover.To = "k2"
	log, journal := &memoryLog[*trust.Revocation]{}, &memoryJournal{}
	var heard []string
	r := trust.NewRevocations(trust.RevocationsConfig{Log: log, Journal: journal,
		Applied: func(e *trust.Revocation) { heard = append(heard, e.ID) }})
	for _, e := range []*trust.Revocation{one, handover, more} {
		at := trust.Revision(0)
		if e == handover {
			_, at = r.About(web1)
		}
		if err := r.Put(t.Context(), e, at); err != nil {
			t.Fatalf("%s: %v", e.ID, err)
		}
	}
	if e, at := r.About(web1); e != nil || at != 2 || r.Outstanding(web1, "") != nil || r.Key("k1") != nil {
		t.Errorf("about the node: %+v at %d", e, at)
	}
	for serial, by := range map[string]string{"7": "c", "8": "d", "1": "h"} {
		if e := r.Serial(serial); e == nil || e.ID != by {
			t.Errorf("certificate %s is revoked by %+v, want %s", serial, e, by)
		}
	}
	if !slices.Equal(heard, []string{"c", "h", "d"}) || !strings.Contains(r.Serial("7").Err().Error(),
		"a service certificate of web1.example.net: https: revoked by") {
		t.Errorf("heard of %q, %v", heard, r.Serial("7").Err())
	}
	retire := nodeEntry("t", trust.RetiredNode, "3", "")
	_, at := r.About(web1)
	if err := r.Put(t.Context(), retire, at); err != nil || r.Serial("7") == nil {
		t.Errorf("retired: %v, certificate revoked by %v", err, r.Serial("7"))
	}
	again := &memoryLog[*trust.Revocation]{}
	restored := trust.NewRevocations(trust.RevocationsConfig{Log: again, Journal: journal})
	if err := restored.Restore(t.Context()); err != nil || again.last != 4 || restored.Serial("8") == nil {
		t.Errorf("restored: %v, %d entries", err, again.last)
	}
	for name, edit := range map[string]func(*trust.Revocation){
		"no certificates": func(e *trust.Revocation) { e.Certificates = nil },
		"a key":           func(e *trust.Revocation) { e.Keys = []string{"k1"} },
		"no node":         func(e *trust.Revocation) { e.Node = "" },
	} {
		bad := nodeEntry("x", trust.RevokedService, "9", "")
		edit(bad)
		if err := r.Put(t.Context(), bad, 0); err == nil {
			t.Errorf("%s: put", name)
		}
	}
}
