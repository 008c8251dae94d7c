package wire_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"muster/internal/wire"
)

func TestParseIdentity(t *testing.T) {
	t.Parallel()
	label63 := strings.Repeat("a", 63)
	tests := map[string]struct {
		text string
		ok   bool
	}{
		"fully qualified name":       {"web1.example.net", true},
		"one label":                  {"web", true},
		"digits first":               {"1web.example.net", true},
		"inner hyphen":               {"web-1.example.net", true},
		"longest label":              {label63 + ".net", true},
		"longest name":               {strings.Repeat(label63+".", 3) + strings.Repeat("b", 61), true},
		"empty":                      {"", false},
		"one byte too long":          {strings.Repeat(label63+".", 3) + strings.Repeat("b", 62), false},
		"label too long":             {label63 + "a.net", false},
		"upper case":                 {"Web1.example.net", false},
		"underscore":                 {"web_1.example.net", false},
		"trailing dot":               {"web1.example.net.", false},
		"leading dot":                {".web1", false},
		"doubled dot":                {"web1..net", false},
		"leading hyphen":             {"-web.net", false},
		"trailing hyphen":            {"web-.net", false},
		"path":                       {"../../etc", false},
		"wildcard":                   {"a.*", false},
		"full wildcard":              {">", false},
		"blank":                      {"web 1.net", false},
		"NUL":                        {"web\x00.net", false},
		"not ASCII":                  {"wéb.net", false},
		"IP address":                 {"10.0.0.1", false},
		"line break at the end":      {"web.net\n", false},
		"number as the last label":   {"web.1", false},
		"hexadecimal last label":     {"web.0x1", false},
		"hexadecimal without digits": {"web.0x", false},
		"hexadecimal alone":          {"0xdeadbeef", false},
		"hexadecimal looking name":   {"web.0xg", true},
		"hexadecimal first label":    {"0x1.example.net", true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			id, err := wire.ParseIdentity(tt.text)
			if tt.ok != (err == nil) || !tt.ok && !errors.Is(err, wire.ErrIdentity) {
				t.Fatalf("ParseIdentity(%q) = %v, want accepted %v", tt.text, err, tt.ok)
			}
			if !tt.ok {
				if id != "" {
					t.Fatalf("ParseIdentity(%q) = %q beside an error", tt.text, id)
				}
				return
			}
			back, err := wire.ParseSubjectToken(id.SubjectToken())
			if err != nil || back != id || strings.ContainsAny(id.SubjectToken(), ".*> ") {
				t.Fatalf("subject token %q of %q reads back as %q, %v", id.SubjectToken(), id, back, err)
			}
		})
	}
}

func TestPatternMatches(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		pattern string
		yes, no []string
	}{
		"literal":          {"web.example.net", []string{"web.example.net"}, []string{"web", "web.example.net.evil", "xweb.example.net"}},
		"inside a label":   {"web*.example.net", []string{"web.example.net", "web12.example.net"}, []string{"web.evil.example.net", "db.example.net"}},
		"one character":    {"web?.example.net", []string{"web1.example.net"}, []string{"web.example.net", "web12.example.net"}},
		"a whole label":    {"*.example.net", []string{"a.example.net"}, []string{"a.b.example.net", "example.net"}},
		"any depth":        {"**.example.net", []string{"a.example.net", "a.b.example.net"}, []string{"example.net", "aexample.net"}},
		"everything":       {"*", []string{"a", "a.b.c"}, nil},
		"not into numbers": {"web.*", []string{"web.net"}, []string{"web"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := wire.ParsePattern(tt.pattern)
			if err != nil {
				t.Fatal(err)
			}
			for _, id := range tt.yes {
				if !p.Match(wire.Identity(id)) {
					t.Errorf("%q does not match %q", p, id)
				}
			}
			for _, id := range tt.no {
				if p.Match(wire.Identity(id)) {
					t.Errorf("%q matches %q", p, id)
				}
			}
		})
	}
	for _, bad := range []string{"", ".", "a..b", "A.net", "[a-z].net", "a**.net", "a.**.net", "**", "a/b", `a\*`,
		"ok.0x1", "10.0.0.1", "web*.7", "**.0x",
		strings.Repeat("a", 254)} {
		if p, err := wire.ParsePattern(bad); !errors.Is(err, wire.ErrPattern) || p != "" {
			t.Errorf("ParsePattern(%q) = %q, %v, want %v", bad, p, err, wire.ErrPattern)
		}
	}
}

func TestStrictJSON(t *testing.T) {
	t.Parallel()
	type inner struct {
		B int `json:"b"`
	}
	type outer struct {
		A     string            `json:"a"`
		Inner *inner            `json:"inner"`
		List  []inner           `json:"list"`
		Map   map[string]string `json:"map"`
		Raw   json.RawMessage   `json:"raw"`
	}
	tests := map[string]struct {
		text string
		ok   bool
	}{
		"every member":              {`{"a":"x","inner":{"b":1},"list":[{"b":2}, {"b":3}],"map":{"k":"v"},"raw":{"any":[1,{"thing":null}]}}`, true},
		"empty":                     {` {} `, true},
		"empty containers":          {`{"list":[ ],"map":{ },"raw":[]}`, true},
		"unknown member":            {`{"c":1}`, false},
		"unknown member, nested":    {`{"inner":{"c":1}}`, false},
		"unknown member, in a list": {`{"list":[{"b":1},{"c":1}]}`, false},
		"other case":                {`{"A":"x"}`, false},
		"other case, nested":        {`{"inner":{"B":1}}`, false},
		"twice":                     {`{"a":"x","a":"y"}`, false},
		"twice, escaped":            {`{"a":"x","\u0061":"y"}`, false},
		"twice, in a map":           {`{"map":{"k":"v","k":"w"}}`, false},
		"twice, in raw":             {`{"raw":{"x":[{"k":1,"k":2}]}}`, false},
		"trailing data":             {`{} {}`, false},
		"truncated":                 {`{"a":`, false},
		"nothing":                   {``, false},
		"invalid UTF-8":             {"{\"a\":\"\xff\"}", false},
		"as deep as allowed":        {`{"raw":` + strings.Repeat("[", wire.MaxDepth) + strings.Repeat("]", wire.MaxDepth) + `}`, true},
		"too deep":                  {`{"raw":` + strings.Repeat("[", wire.MaxDepth+1) + strings.Repeat("]", wire.MaxDepth+1) + `}`, false},
		"braces in text":            {`{"a":"}{\"]["}`, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var o outer
			err := wire.DecodeStrict([]byte(tt.text), &o)
			if tt.ok != (err == nil) || !tt.ok && !errors.Is(err, wire.ErrJSON) {
				t.Fatalf("DecodeStrict(%s) = %v, want accepted %v", tt.text, err, tt.ok)
			}
		})
	}
}

func TestTokenStaysOutOfTheLog(t *testing.T) {
	t.Parallel()
	r := &wire.EnrollRequest{ID: "r1", Identity: "web1.example.net", Token: "hunter2",
		Facts: json.RawMessage(`{"s":"hunter2"}`)}
	reply := &wire.Reply{ID: "r1", Enrolled: &wire.Enrolled{Serial: "abc",
		Files: wire.Files{Configuration: map[string]string{"password": "hunter2"}}}}
	for name, handler := range map[string]func(*bytes.Buffer) slog.Handler{
		"text": func(b *bytes.Buffer) slog.Handler { return slog.NewTextHandler(b, nil) },
		"json": func(b *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(b, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b bytes.Buffer
			slog.New(handler(&b)).Info("enrollment asked for", "request", r, "token", r.Token, "reply", reply,
				"enrolled", reply.Enrolled,
				"printed", fmt.Sprintf("%v %+v %#v %s", r.Token, r.Token, r.Token, r.Token))
			if got := b.String(); strings.Contains(got, "hunter2") || !strings.Contains(got, "web1.example.net") ||
				!strings.Contains(got, "abc") {
				t.Errorf("log line = %s", got)
			}
		})
	}
}

func TestEveryCodeHasAMeaning(t *testing.T) {
	t.Parallel()
	for c, m := range wire.Codes {
		told := wire.MeaningOf(c)
		if told.Public == "" || told.Remedy == "" || m.Public != "" && m.SentAs != "" {
			t.Errorf("%s has no public text or no remedy, or a public text that nobody reads", c)
		}
		if strings.HasSuffix(told.Public, ".") || strings.ToLower(told.Public[:1]) != told.Public[:1] {
			t.Errorf("%s: public text %q, want one clause without capital and full stop", c, told.Public)
		}
		if seen, known := wire.Codes[m.SentAs]; m.SentAs != "" && (!known || seen.SentAs != "" ||
			seen.Public != told.Public) {
			t.Errorf("%s is told as %s, which must exist and have the same public text", c, m.SentAs)
		}
	}
	if got := wire.MeaningOf("from_the_future"); got != wire.MeaningOf(wire.CodeDenied) {
		t.Errorf("an unknown code means %+v, want %s", got, wire.CodeDenied)
	}
}

func TestFilesCheck(t *testing.T) {
	t.Parallel()
	ok := map[string]string{"identity": "web1"}
	tests := map[string]struct {
		files wire.Files
		ok    bool
	}{
		"a setting":             {wire.Files{Configuration: ok}, true},
		"an empty value":        {wire.Files{Configuration: map[string]string{"a": ""}}, true},
		"with policies":         {wire.Files{Configuration: ok, ActionPolicies: map[string]string{"rpcutil": "x\ny\n"}, OPAPolicies: map[string]string{"a.b": "z"}}, true},
		"nothing":               {wire.Files{}, false},
		"line break in a value": {wire.Files{Configuration: map[string]string{"a": "b\nprovision = true"}}, false},
		"carriage return":       {wire.Files{Configuration: map[string]string{"a": "b\rc"}}, false},
		"blank at the end":      {wire.Files{Configuration: map[string]string{"a": "b "}}, false},
		"equals in a key":       {wire.Files{Configuration: map[string]string{"a=b": "c"}}, false},
		"empty key":             {wire.Files{Configuration: map[string]string{"": "c"}}, false},
		"comment as a key":      {wire.Files{Configuration: map[string]string{"#a": "c"}}, false},
		"invalid UTF-8":         {wire.Files{Configuration: map[string]string{"a": "\xff"}}, false},
		"policy that climbs":    {wire.Files{Configuration: ok, ActionPolicies: map[string]string{"../../etc/passwd": "x"}}, false},
		"policy with a slash":   {wire.Files{Configuration: ok, OPAPolicies: map[string]string{"a/b": "x"}}, false},
		"hidden policy":         {wire.Files{Configuration: ok, OPAPolicies: map[string]string{".bashrc": "x"}}, false},
		"NUL in a policy":       {wire.Files{Configuration: ok, OPAPolicies: map[string]string{"a": "\x00"}}, false},
		"too much":              {wire.Files{Configuration: map[string]string{"a": strings.Repeat("x", wire.MaxFilesBytes)}}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := tt.files.Check()
			if tt.ok != (err == nil) || !tt.ok && !errors.Is(err, wire.ErrFiles) {
				t.Errorf("Check = %v, want accepted %v", err, tt.ok)
			}
		})
	}
	// Files that Check accepts fit into a reply, whatever escapes JSON needs.
	for _, c := range []string{"\\", "<", "\"", "é"} {
		big := wire.Files{Configuration: map[string]string{"a": strings.Repeat(c, (wire.MaxFilesBytes-1)/len(c))}}
		if err := big.Check(); err != nil {
			t.Fatal(err)
		}
		b, err := wire.Encode(&wire.Reply{ID: "x", Enrolled: &wire.Enrolled{Certificate: strings.Repeat("c", 8<<10),
			CA: strings.Repeat("c", 8<<10), Files: big}})
		if err != nil || len(b) > wire.MaxReplyBytes {
			t.Errorf("the largest reply of %s has %d bytes (%v), limit %d", c, len(b), err, wire.MaxReplyBytes)
		}
	}
}

func TestWaitIsBounded(t *testing.T) {
	t.Parallel()
	for ms, want := range map[int64]time.Duration{-5: 0, 0: 0, 1500: 1500 * time.Millisecond, 1 << 62: time.Hour} {
		if got := (&wire.Refusal{RetryAfter: ms}).Wait(); got != want {
			t.Errorf("Wait of %d ms = %v, want %v", ms, got, want)
		}
	}
}

// A duplicate name is quoted unchanged, even if it looks like a verb of package fmt.
func TestErrorQuotesDuplicateName(t *testing.T) {
	t.Parallel()
	err := wire.CheckStrict([]byte(`{"a":{"%q%q":1,"%q%q":2}}`))
	const want = `not strict JSON: duplicate object member name "%q%q"`
	if !errors.Is(err, wire.ErrJSON) || err.Error() != want {
		t.Errorf("CheckStrict = %v, want %s", err, want)
	}
}
