package wire_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"muster/internal/wire"
)

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

// FuzzEachMember compares with encoding/json on strict JSON, and must end on any other text.
func FuzzEachMember(f *testing.F) {
	addGolden(f)
	for _, s := range []string{`{}`, ` { "a" : [1,"}",{"b":"\\\""}] , "\u00e4":-1.5e3 } `, `{"a":,}`, `{"a":1`,
		`{"a"`, `[]`, `{"a":"\`, `{"a":1}}`, `{"a":{"b":[}]}`} {
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

// FuzzDecodeStrict checks that encoding/json accepts the same texts with the same value.
func FuzzDecodeStrict(f *testing.F) {
	addGolden(f)
	for _, s := range []string{
		`{"text":"\ud83d\ude00 \ud83d","bytes":"AAH+/w==","raw":{"a":[1]},"pointer":{"int":-1},"nil":null,"texts":[null,"x"]}`,
		`{"map":{"a":"b"},"any":{"x":[1.5e3]},"at":"2026-02-03T04:05:06Z","address":"::1","triple":[1,2,3],"span":1}`,
		`{"bool":true,"envelope":{"v":1,"sealed":false,"body":{}},"configuration":{"k":"v"},"uint":18446744073709551615}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if wire.CheckStrict(b) == nil && !json.Valid(b) {
			t.Fatalf("CheckStrict takes %q", b)
		}
		var got, want everyKind
		if wire.DecodeStrict(b, &got) != nil {
			return
		}
		if err := json.Unmarshal(b, &want); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("DecodeStrict(%q) = %+v, want %+v, %v", b, got, want, err)
		}
	})
}
