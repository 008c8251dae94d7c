package policies

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/util"
)

// documents are JSON and what is nearly that, in the corners of the format.
var documents = []string{
	``, ` `, `{}`, `{"role":"web"}`, `[]`, `null`, `{"a":{"a":{"a":[1,2.5e300,null,true,false]}}}`, `"text"`, `3`, `true`,
	`{"a":1,"a":2}`, `{"a":{"b":1},"a":{"c":2}}`, `{"a":{"b":1},"a":3}`, `{"a":3,"a":{"b":1}}`, `{"\u0061":{"\u0062":1}}`, `{"a\"b":1}`, `{"":{"":1}}`,
	`{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"i":1,"a":2,"i":2,"i":3,"j":1,"j":{}}`, `{"a":[{"b":1},{"b":2}]}`, `{"a":{"0":"text","1":2}}`, `{"a":["x","y"]}`, `{"A":{"b":1}}`, `{"\ud83d\ude00":1,"ü":{"ß":"é"}}`, `{"\ud800":1}`, `{"a":"\ud800x"}`,
	"{\"\x00\":1}", "{\"a\":\"\xff\"}", "{\"\xff\":{\"b\":1}}", "{\"a\":\"\x7f\"}", "{\"a\":\"line\nfeed\"}", "\ufeff{}",
	`{"a":"\n\t\\\/\b\f\r\""}`, `{"a":"\x"}`, `{"a":"\u12"}`, `{"a":"\u12g4"}`, `{"a":"\`, `{"a":"\u`, `{"a":"`, `{"a`, `{"a"`, `{"a":`, `{"a":1`, `{`, `[`, `[1`, `[1,`,
	`{"a":0}`, `{"a":-0}`, `{"a":-0.0}`, `{"a":01}`, `{"a":1.}`, `{"a":.1}`, `{"a":+1}`, `{"a":-}`, `{"a":1e}`, `{"a":1e+}`, `{"a":1E+2}`, `{"a":1.50e-3}`, `{"a":0x1}`, `{"a":1_0}`,
	`{"a":1e400}`, `{"a":-1e400}`, `{"a":1e-400}`, `{"a":1e999999999}`, `{"a":1e99999999999999999999}`, `{"n":{"a":1e999999999}}`, `{"a":123456789012345678901234567890}`, `{"a":9007199254740993}`,
	`{"a":0.1000000000000000055511151231257827}`, `1e9`, `{"a":NaN}`, `{"a":Infinity}`, `{"a":nul}`, `{"a":nulll}`, `{"a":True}`, `{"a":'x'}`, `{a:1}`, `{"a" 1}`, `{"a";1}`,
	`{"a":1,}`, `{,}`, `[,]`, `[1,]`, `[1 2]`, `{"a":1 "b":2}`, `{"a":1}{}`, `{} {}`, `{}x`, `{}]`, `[}`, `{"a":1/*c*/}`, " \t\r\n{ \"a\" :\t[ 1 ,\n2 ] }\r\n ", "{\v}", "\u00a0{}",
	`{"a":{"b":{"c":{"d":"deep"}}},"z":{"b":{"c":[1,{"d":2}]}}}`, `{"role":null}`, `{"a":null}`, `{"a":{}}`, `{"a":[]}`, `{"a":""}`,
	strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth), strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1),
	strings.Repeat(`{"a":`, maxDepth) + "1" + strings.Repeat("}", maxDepth), strings.Repeat(`{"a":`, maxDepth+1) + "1" + strings.Repeat("}", maxDepth+1),
}

// FuzzScan checks that a text becomes the value that encoding/json and OPA make
// of it, or is refused where they refuse it, and that it is refused or taken no
// matter what is selected.
func FuzzScan(f *testing.F) {
	for _, d := range documents {
		f.Add([]byte(d))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var decoded any
		err := util.UnmarshalJSON(text, &decoded)
		if err == nil && !json.Valid(text) { // "{} 1", which two decoders of OPA see in two ways
			t.Skip()
		}
		var want ast.Value
		if err == nil {
			want, err = ast.InterfaceToValue(decoded)
		}
		got, errGot := termOfJSON(text, everything)
		if (err == nil) != (errGot == nil) {
			// Of a member that comes twice, OPA looks only at the last.
			if err != nil || !strings.Contains(errGot.Error(), "out of range") {
				t.Fatalf("termOfJSON(%.200q) = %v, want %v", text, errGot, err)
			}
		}
		if errGot == nil && got.Value.String() != want.String() { // texts: comparing huge numbers takes long
			t.Fatalf("termOfJSON(%.200q) = %v, want %v", text, got, want)
		}
		for _, s := range []*selection{nil, selecting("a.b")} {
			some, err := termOfJSON(text, s)
			if (err == nil) != (errGot == nil) || (err != nil && err.Error() != errGot.Error()) {
				t.Fatalf("termOfJSON(%.200q) = %v, with less selected %v", text, errGot, err)
			}
			if s == nil && some != nil {
				t.Fatalf("termOfJSON(%.200q) = %v, want nothing", text, some)
			}
			if err != nil || s == nil {
				continue
			}
			for _, path := range []string{"a", "a.b", "a.b.c"} { // the first is what of it is selected
				if w, g := find(got, path), find(some, path); path != "a" && !equal(w, g) {
					t.Fatalf("%.200q: %s is %v, with less selected %v", text, path, w, g)
				}
			}
		}
	})
}

// refTo returns the names in a path.
func refTo(path string) (ref ast.Ref) {
	for name := range strings.SplitSeq(path, ".") {
		ref = append(ref, ast.StringTerm(name))
	}
	return ref
}

// find returns what a reference leads to, nil if it leads nowhere.
func find(t *ast.Term, path string) ast.Value {
	v, err := t.Value.Find(refTo(path))
	if err != nil {
		return nil
	}
	return v
}

func equal(a, b ast.Value) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return a.String() == b.String()
}

// selecting returns what a policy selects that names these paths.
func selecting(paths ...string) *selection {
	s := &selection{}
	for _, path := range paths {
		s.add(refTo(path))
	}
	return s
}

// What is not named is left out, and no error shows a value.
func TestScanLeavesOut(t *testing.T) {
	t.Parallel()
	s := selecting("os.name", "os.version", "räck", "list.x")
	for text, want := range map[string]string{
		`{"os":{"name":"linux","kernel":"6.1"},"disks":[1,2,3]}`: `{"os":{"name":"linux"}}`,
		`{"disks":[]}`:                        `{}`,
		`{"os":"linux","disks":1}`:            `{"os":"linux"}`,
		`{"list":[{"x":1,"y":2}]}`:            `{"list":[{"x":1,"y":2}]}`,
		`{"r\u00e4ck":{"a":1},"rack":2}`:      `{"räck":{"a":1}}`,
		`{"os":{"name":1},"os":{"kernel":1}}`: `{"os":{}}`,
	} {
		got, err := termOfJSON([]byte(text), s)
		if err != nil {
			t.Fatal(err)
		}
		if w := ast.MustParseTerm(want); !got.Equal(w) {
			t.Errorf("of %s is left %v, want %v", text, got, w)
		}
	}
	for _, text := range []string{`{"password":"hunter2}`, `{"password":hunter2}`, `{"hunter2":1e999999999}`, `{"a":"hunter2" "b"}`, `{"hunter2" 1}`, `{"a":1}hunter2`} {
		if _, err := termOfJSON([]byte(text), nil); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("termOfJSON(%s) = %v", text, err)
		}
	}
}

// String lists what is selected, for tests.
func (s *selection) String() string {
	var paths []string
	var list func(*selection, string)
	list = func(s *selection, path string) {
		if s.whole {
			paths = append(paths, path)
			return
		}
		for name, below := range s.members {
			list(below, fmt.Sprintf("%s.%s", path, name))
		}
	}
	list(s, "input")
	slices.Sort(paths)
	return strings.Join(paths, " ")
}
