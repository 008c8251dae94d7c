package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// The decoders without the scanner: what decides.
func slowly[T any](b []byte) (*T, error) {
	v := new(T)
	if err := openPlain(b, MaxMessageBytes, v); err != nil {
		return nil, err
	}
	return v, nil
}

// compareScans decodes b with and without the scanner. What is scanned must be
// the same value; it returns whether anything was.
func compareScans(t *testing.T, b []byte) bool {
	t.Helper()
	enroll, isEnroll := scanEnroll(b)
	if isEnroll {
		sameValue(t, b, enroll, slowly[EnrollRequest])
	}
	applied, isApplied := scanApplied(b)
	if isApplied {
		sameValue(t, b, applied, slowly[Applied])
	}
	sealed, isSealed := scanSealed(b)
	if isSealed {
		sameValue(t, b, sealed, openSlowly)
	}
	return isEnroll || isApplied || isSealed
}

// openSlowly is [Open] without the scanner: a blank is in its way.
func openSlowly(b []byte) (*Envelope, error) {
	return Open([]byte(" "+string(b)), MaxReplyBytes+1)
}

func sameValue[T any](t *testing.T, b []byte, got *T, slowly func([]byte) (*T, error)) {
	t.Helper()
	want, err := slowly(b)
	if err != nil {
		t.Fatalf("%q was scanned, and is refused: %v", b, err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%q is %+v, scanned it is %+v", b, want, got)
	}
}

// enrollWith returns an enroll request with the facts, in an envelope.
func enrollWith(facts string) string {
	return plainStart + `{"id":"x","identity":"web1.example.net","token":"a.b.c","csr":"REVS","facts":` + facts + `,"agent":"muster 1","boot":"y"}}`
}

// spelled are messages, by whether the scanner is to read them.
func spelled() map[string]bool {
	nested := func(n int) string { return strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n) }
	many := func(n int, last string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"name%d":%d,`, i, i)
		}
		return "{" + b.String() + `"` + last + `":0}`
	}
	m := map[string]bool{
		plainStart + `{}}`:                             false,
		plainStart + `{"id":"x"}}`:                     true,
		plainStart + `{"id":"x"}} `:                    false,
		plainStart + `{"id":"x"},"key":"k"}`:           false,
		plainStart + `{"id":"x"}}}`:                    false,
		plainStart + `{"id":"x",}}`:                    false,
		plainStart + `{"id":"x","id":"y"}}`:            false,
		plainStart + `{"id":"x","ID":"y"}}`:            false,
		plainStart + `{"id":"x","i\u0064":"y"}}`:       false,
		plainStart + `{"id":"\u0078"}}`:                false,
		plainStart + `{"id":null}}`:                    false,
		plainStart + `{"id":1}}`:                       false,
		plainStart + `{"id": "x"}}`:                    false,
		plainStart + `{"id":"x","unknown":1}}`:         false,
		plainStart + `{"csr":""}}`:                     true,
		plainStart + `{"csr":"AA"}}`:                   false,
		plainStart + `{"csr":"AB=="}}`:                 true,
		plainStart + `{"csr":"A-=="}}`:                 false,
		plainStart + `{"csr":null}}`:                   false,
		plainStart + `{"csr":"REVS` + "\n" + `"}}`:     false,
		plainStart + `{"csr":"RE` + "\r\n" + `VS"}}`:   false,
		plainStart + `{"csr":"REVS\n"}}`:               false,
		plainStart + `{"csr":"REVS`:                    false,
		plainStart + `{"id":"` + "\xff" + `"}}`:        false,
		plainStart + `{"id":"` + "\x01" + `"}}`:        false,
		plainStart + `{"id":"é` + "\x7f" + `"}}`:       true,
		`{"v":2,"sealed":false,"body":{"id":"x"}}`:     false,
		`{"v":1,"sealed":true,"ct":"AA=="}`:            true,
		`{"v":1,"sealed":true,"ct":""}`:                false,
		`{"v":1,"sealed":true,"enc":"","ct":"AA=="}`:   true,
		`{"v":1,"sealed":true,"ct":"AA==","ct":"AB"}`:  false,
		`{"v":1,"sealed":true,"ct":"AA==","body":{}}`:  false,
		`{"v":1,"sealed":true,"ct":"AA==","body":""}`:  false,
		`{"v":1,"sealed":true,"key":"k","ct":"AA=="} `: false,
	}
	for facts, scanned := range map[string]bool{
		`{}`: true, `{"a":1}`: true, ` { "a" : [ 1 , { } , [ ] , "x" ] , "b" : { } } `: false, "{\n\t\"a\": [1, {}, [],\r\n \"x\"], \"b\": { }\n}": true,
		`[]`: false, `null`: false, `""`: false, `1`: false, `{"a":1,"a":1}`: false, `{"a":{"b":1,"c":[{"b":1,"b":2}]}}`: false, `{"a":{"a":1},"b":{"a":1}}`: true,
		`{"a":tru}`: false, `{"a":true,"b":false,"c":null}`: true, `{"a":nulll}`: false, `{"":1}`: true, `{"a":}`: false, `{"a"}`: false, `{"a":1 2}`: false, `{,}`: false, `{"a":[1,]}`: false,
		`{"a":"\"\\\/\b\f\n\r\t\u00e9\ud800"}`: true, `{"a":"\x"}`: false, `{"a":"\u12g4"}`: false, `{"a":"\`: false, `{"\n":1}`: false, "{\"a\":\"\t\"}": false, `{"é":"日本"}`: true,
		nested(62): true, nested(63): false, `{"a":` + strings.Repeat("[", 62) + strings.Repeat("]", 62) + `}`: true,
		many(8, "name7"): false, many(8, "name8"): true, many(200, "name0"): false, many(200, "name199"): false, many(200, "x"): true, many(16, "name3"): false,
	} {
		m[enrollWith(facts)] = scanned
	}
	for number, good := range map[string]bool{
		"0": true, "-0": true, "01": false, "-": false, "1.": false, ".1": false, "1.0": true, "1e5": true, "1E+5": true, "1e-05": true, "1e": false, "+1": false, "1e+": false,
		"0.10e10": true, "NaN": false, "0x1": false, "--1": false, "1e5.5": false, "00": false,
	} {
		m[enrollWith(`{"a":`+number+`}`)] = good
		m[enrollWith(`{"a":[`+number+`]}`)] = good
	}
	return m
}

func TestScanReadsWhatWeWrite(t *testing.T) {
	t.Parallel()
	for text, want := range spelled() {
		if got := compareScans(t, []byte(text)); got != want {
			t.Errorf("%s: scanned %v, want %v", text, got, want)
		}
		for n := range text {
			if want && compareScans(t, []byte(text[:n])) {
				t.Fatalf("%s: scanned without its end", text[:n])
			}
		}
	}
	for _, name := range []string{"enroll.json", "applied.json"} {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		var e Envelope
		if err := json.Unmarshal(b, &e); err != nil {
			t.Fatal(err)
		}
		if b, err = marshal(e); err != nil {
			t.Fatal(err)
		}
		if !compareScans(t, b) {
			t.Errorf("%s is not scanned: %s", name, b)
		}
	}
}

// TestScanKeepsToTheLimit has a message of the largest size and one past it.
func TestScanKeepsToTheLimit(t *testing.T) {
	t.Parallel()
	frame := plainStart + `{"identity":""}}`
	for _, tt := range []struct {
		size    int
		want    error // it has no id
		scanned bool
	}{{MaxMessageBytes, ErrMessage, true}, {MaxMessageBytes + 1, ErrTooLarge, false}} {
		b := []byte(plainStart + `{"identity":"` + strings.Repeat("a", tt.size-len(frame)) + `"}}`)
		if _, err := DecodeApplied(b); len(b) != tt.size || !errors.Is(err, tt.want) {
			t.Errorf("%d bytes: %v, want %v", len(b), err, tt.want)
		}
		if compareScans(t, b) != tt.scanned {
			t.Errorf("%d bytes: scanned %v", len(b), !tt.scanned)
		}
	}
}

// FuzzScan compares the scanner with the decoder that decides.
func FuzzScan(f *testing.F) {
	for text := range spelled() {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) { compareScans(t, b) })
}
