package wire_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"muster/internal/wire"
)

// addGolden adds the golden files as seeds.
func addGolden(f *testing.F) {
	f.Helper()
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 {
		f.Fatal("no golden files", err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
}

// FuzzCheckStrict compares the walk over JSON with a slow one over the tokens of
// the standard library: they refuse the same texts.
func FuzzCheckStrict(f *testing.F) {
	addGolden(f)
	for _, s := range []string{
		`{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, `{"a":{"a":[{"a":1},{"a":2}]}}`, `[[],[{}],""]`, ` { } `, `{"\ud800":1,"\ud801":2}`,
		strings.Repeat("[", 65) + strings.Repeat("]", 65), strings.Repeat("[", 66) + strings.Repeat("]", 66),
		`{"` + strings.Repeat("\u0080", 500) + `":1}`, `{"agent":` + strings.Repeat("1", 1000) + `}`, `{"a":1,"` + strings.Repeat("a", 1000) + `":1,"` + strings.Repeat("a", 1000) + `":1}`,
		"{\"\xff\":1}", `"\"\\"`, `1e9 `, `{} {}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		err := wire.CheckStrict(b)
		if err != nil && !errors.Is(err, wire.ErrJSON) {
			t.Fatalf("CheckStrict = %v, want %v", err, wire.ErrJSON)
		}
		if want := strict(b); want != (err == nil) {
			t.Fatalf("CheckStrict(%q) = %v, want it accepted %v", b, err, want)
		}
		// With a type it refuses more, and never less.
		var r wire.EnrollRequest
		typed := wire.DecodeStrict(b, &r)
		if typed == nil && err != nil {
			t.Fatalf("DecodeStrict(%q) accepts what CheckStrict refuses: %v", b, err)
		}
		for _, err := range []error{err, typed} {
			if err != nil && (len(err.Error()) > 1000 || strings.ContainsAny(err.Error(), "\r\n")) {
				t.Fatalf("%d bytes are refused in %d: %.200q", len(b), len(err.Error()), err)
			}
		}
	})
}

// strict is what CheckStrict should say, written another way.
func strict(b []byte) bool {
	if !utf8.Valid(b) || !json.Valid(b) {
		return false
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	type container struct {
		names map[string]bool // nil in an array
		name  bool            // the next string is a name
	}
	var open []container
	for {
		token, err := d.Token()
		if err != nil {
			return errors.Is(err, io.EOF)
		}
		if n := len(open); n > 0 && open[n-1].name && token != json.Delim('}') {
			name := token.(string)
			if open[n-1].names[name] {
				return false
			}
			open[n-1].names[name], open[n-1].name = true, false
			continue
		}
		delim, _ := token.(json.Delim)
		if delim == '}' || delim == ']' {
			open = open[:len(open)-1]
		} else if len(open) > wire.MaxDepth {
			return false
		}
		switch delim {
		case '{':
			open = append(open, container{names: map[string]bool{}, name: true})
			continue
		case '[':
			open = append(open, container{})
			continue
		}
		if n := len(open); n > 0 && open[n-1].names != nil {
			open[n-1].name = true
		}
	}
}

// FuzzOpen checks that envelopes are one thing or the other, and read the same
// once written again.
func FuzzOpen(f *testing.F) {
	addGolden(f)
	for _, s := range []string{
		`{"v":1,"sealed":true,"key":"k","enc":"AA==","ct":"AA=="}`, `{"v":1,"sealed":true,"ct":"AA=="}`, `{"v":1,"sealed":false,"body":null}`,
		`{"v":1,"sealed":false,"body":{},"ct":""}`, `{"v":2}`, `{"v":1.0,"sealed":false,"body":1}`, `{"V":1}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := wire.Open(b, wire.MaxMessageBytes)
		if err != nil {
			if e != nil {
				t.Fatal("an envelope beside the error")
			}
			if !errors.Is(err, wire.ErrMessage) && !errors.Is(err, wire.ErrTooLarge) && !errors.Is(err, wire.ErrVersion) {
				t.Fatalf("Open = %v, want one of its errors", err)
			}
			return
		}
		if e.Sealed == (len(e.Body) > 0) || e.Sealed != (len(e.Ciphertext) > 0) || !e.Sealed && (e.Key != "" || len(e.Encapsulated) > 0) {
			t.Fatalf("neither plain nor sealed: %+v", e)
		}
		again, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		// Escapes for HTML may make it longer than it was.
		e2, err := wire.Open(again, 8*wire.MaxMessageBytes)
		if err != nil {
			t.Fatalf("our own encoding is refused: %v", err)
		}
		if compact(t, e); !reflect.DeepEqual(e, e2) {
			t.Fatalf("round trip: %+v became %+v", e, e2)
		}
	})
}

// compact gives the members of e the form that encoding gives them.
func compact(t *testing.T, e *wire.Envelope) {
	t.Helper()
	if len(e.Encapsulated) == 0 {
		e.Encapsulated = nil
	}
	if len(e.Body) == 0 {
		return
	}
	b, err := json.Marshal(e.Body)
	if err != nil {
		t.Fatal(err)
	}
	e.Body = b
}

// FuzzEachMember holds [wire.EachMember] to encoding/json on texts that are strict JSON. On all others it ends.
func FuzzEachMember(f *testing.F) {
	addGolden(f)
	for _, s := range []string{`{}`, ` { "a" : [1,"}",{"b":"\\\""}] , "\u00e4":-1.5e3 } `, `{"a":,}`, `{"a":1`, `{"a"`, `[]`, `{"a":"\`, `{"a":1}}`, `{"a":{"b":[}]}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got := map[string]string{}
		err := wire.EachMember(b, func(name []byte, value json.RawMessage) error {
			got[string(name)] = string(value)
			return nil
		})
		var want map[string]json.RawMessage
		if wire.CheckStrict(b) != nil || json.Unmarshal(b, &want) != nil || want == nil {
			return
		}
		if err != nil || len(got) != len(want) {
			t.Fatalf("EachMember(%q): %d members, %v, want %d", b, len(got), err, len(want))
		}
		for name, value := range want {
			if got[name] != string(value) {
				t.Fatalf("EachMember(%q): %q is %q, want %q", b, name, got[name], value)
			}
		}
	})
}
