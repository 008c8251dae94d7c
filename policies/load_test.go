package policies_test

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"muster/policies"
)

const allowAll = "package muster.enroll\n\nallow := true\n"

func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		files map[string]string
		says  []string // the text is the product here: what an operator has to mend
	}{
		"no policy":           {nil, []string{"no policy"}},
		"data alone":          {map[string]string{"data.json": "{}"}, []string{"no policy"}},
		"tests alone":         {map[string]string{"p_test.rego": allowAll}, []string{"no policy"}},
		"empty file":          {map[string]string{"p.rego": ""}, []string{"p.rego"}},
		"nothing but comment": {map[string]string{"p.rego": "# nothing\n"}, []string{"p.rego"}},
		"another package": {map[string]string{"p.rego": "package enroll\n\nallow := true\n"},
			[]string{"muster.enroll.allow"}},
		"no allow": {map[string]string{"p.rego": "package muster.enroll\n\ndeny contains \"x\"\n"},
			[]string{"muster.enroll.allow"}},
		"allow in tests only": {map[string]string{
			"p.rego":      "package muster.enroll\n\ndeny contains \"x\"\n",
			"p_test.rego": allowAll,
		}, []string{"muster.enroll.allow"}},
		"syntax, in two files": {map[string]string{
			"a.rego": "package muster.enroll\n\nallow if {\n",
			"b.rego": "package muster.enroll\n\nallow = = 1\n",
		}, []string{"a.rego:4", "b.rego:3"}},
		"old syntax": {map[string]string{"p.rego": "package muster.enroll\n\nallow { input.identity }\n"},
			[]string{"p.rego:3"}},
		"unused variable": {map[string]string{"p.rego": "package muster.enroll\n\nallow if x := 1\n"},
			[]string{"p.rego:3"}},
		"unused import": {map[string]string{"p.rego": "package muster.enroll\n\nimport data.x\n\nallow := true\n"},
			[]string{"p.rego:3"}},
		"misspelled input": {map[string]string{"p.rego": "package muster.enroll\n\nallow if input.identiy == \"x\"\n"},
			[]string{"p.rego:3", "identiy", "identity"}},
		"misspelled claim": {map[string]string{"p.rego": "package muster.enroll\n\nallow if input.token.sites == " +
			"\"x\"\n"}, []string{"p.rego:3", "sites"}},
		"rule that recurs": {map[string]string{"p.rego": "package muster.enroll\n\nallow if deny\n\ndeny if allow\n"},
			[]string{"recursive"}},
		"network": {map[string]string{"p.rego": "package muster.enroll\n\nallow if http.send({\"method\": \"GET\", " +
			"\"url\": \"http://localhost\"})\n"},
			[]string{"p.rego:3", "http.send"}},
		"tests that fail, all of them": {map[string]string{
			"p.rego": allowAll,
			"p_test.rego": "package muster.enroll_test\n\nimport data.muster.enroll\n\n" +
				"test_one if not enroll.allow\n\ntest_two if enroll.allow\n\ntest_three if enroll.allow == (1 > 2)\n",
		}, []string{"p_test.rego:5", "test_one", "p_test.rego:9", "test_three"}},
		"test that fails by case": {map[string]string{
			"p.rego": allowAll,
			"p_test.rego": "package muster.enroll_test\n\ntest_case[name] if {\n\tsome name, n in {\"one\": 1, " +
				"\"two\": 2}\n\tn == 1\n}\n",
		}, []string{"p_test.rego:3", `"two"`}},
		"test that errs": {map[string]string{
			"p.rego":      allowAll,
			"p_test.rego": "package muster.enroll_test\n\ntest_x if not to_number(\"x\") == 1\n",
		}, []string{"p_test.rego:3", "to_number"}},
		"test that does not compile": {map[string]string{
			"p.rego":      allowAll,
			"p_test.rego": "package muster.enroll_test\n\ntest_x if x := alow\n",
		}, []string{"p_test.rego:3", "alow"}},
		"test that reaches out": {map[string]string{
			"p.rego": allowAll,
			"p_test.rego": "package muster.enroll_test\n\ntest_x if http.send({\"method\": \"GET\", \"url\": " +
				"\"http://localhost\"})\n",
		}, []string{"p_test.rego:3", "http.send"}},
		"data no JSON": {map[string]string{"p.rego": allowAll, "data.json": "{"}, []string{"data.json"}},
		"data an array": {map[string]string{"p.rego": allowAll, "data.json": "[]"},
			[]string{"data.json", "object"}},
		"data says it twice": {map[string]string{"p.rego": allowAll, "data.json": `{"a":1,"a":2}`},
			[]string{"data.json", `"a"`}},
		"YAML says it twice": {map[string]string{"p.rego": allowAll,
			"data.yaml": "refused: [web1]\nrefused: [web2]\n"}, []string{"data.yaml", "line 2", `"refused"`}},
		"YAML twice, below": {map[string]string{"p.rego": allowAll, "data.yml": "a:\n  b: 1\n  b: 2\n"},
			[]string{"data.yml", "line 3", `"b"`}},
		"two documents": {map[string]string{"p.rego": allowAll,
			"data.yaml": "refused: [web1]\n---\nrefused: [web2]\n"}, []string{"data.yaml", "more than one document"}},
		"two files say it": {map[string]string{"p.rego": allowAll, "data.json": `{"a":{"b":1}}`,
			"data.yaml": "a: {b: 2}"}, []string{"data.a is given twice"}},
		"data for policies": {map[string]string{"p.rego": allowAll,
			"data.json": `{"muster":{"enroll":{"allow":true}}}`}, []string{"data.muster"}},
		"data in another place": {map[string]string{"p.rego": allowAll, "muster/enroll/data.json": `{"deny":[]}`},
			[]string{"muster/enroll/data.json"}},
		"rule that hides data": {map[string]string{"p.rego": allowAll, "x.rego": "package x\n\ny := 1\n",
			"data.json": `{"x":{"y":2}}`}, []string{"x.rego:3"}},
		"two policies contrary": {map[string]string{"a.rego": "package muster.enroll\n\ndefault allow := true\n",
			"b.rego": "package muster.enroll\n\ndefault allow := false\n"}, []string{"default"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for file, content := range tt.files {
				write(t, filepath.Join(dir, file), content)
			}
			e, err := policies.Load(policies.Config{Paths: []string{dir}})
			if !errors.Is(err, policies.ErrInvalid) || e != nil {
				t.Fatalf("Load = %v, %v, want nil, %v", e, err, policies.ErrInvalid)
			}
			for _, s := range tt.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("Load error does not say %q:\n%v", s, err)
				}
			}
		})
	}
}

// TestLoadReadsNoDevice is about what may have no end.
func TestLoadReadsNoDevice(t *testing.T) {
	t.Parallel()
	const want = ": is a device, want a regular file"
	if _, err := policies.Load(policies.Config{Paths: []string{"/dev/zero"}}); err == nil ||
		!strings.Contains(err.Error(), "/dev/zero"+want) {
		t.Errorf("Load = %v", err)
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "p.rego"), allowAll)
	if err := os.Symlink(os.DevNull, filepath.Join(dir, "odd.rego")); err != nil {
		t.Fatal(err)
	}
	if _, err := policies.Load(policies.Config{Paths: []string{dir}}); err == nil ||
		!strings.Contains(err.Error(), "odd.rego"+want) {
		t.Errorf("Load of a directory with one = %v", err)
	}
}

// TestPathsWithoutAPolicyAreNamed names them as they were given.
func TestPathsWithoutAPolicyAreNamed(t *testing.T) {
	t.Parallel()
	one, two := t.TempDir(), filepath.Join(t.TempDir(), "p_test.rego")
	write(t, two, allowAll)
	for want, paths := range map[string][]string{
		"policy cannot be used: no policy (*.rego) in " + one +
			": want a Rego file that is not a test, or a directory with one": {one},
		"policy cannot be used: no policy (*.rego) in " + one + ", " + two +
			": want a Rego file that is not a test, or a directory with one": {one, two},
	} {
		if _, err := policies.Load(policies.Config{Paths: paths}); err == nil || err.Error() != want {
			t.Errorf("Load(%q) = %v, want %s", paths, err, want)
		}
	}
}

func TestLoadConfig(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "p.rego"), allowAll)
	tests := map[string]struct {
		cfg  policies.Config
		want error // nil: any
	}{
		"nothing": {policies.Config{}, policies.ErrInvalid},
		"missing": {policies.Config{Paths: []string{filepath.Join(dir, "missing")}}, fs.ErrNotExist},
		"one of two missing": {policies.Config{Paths: []string{dir, filepath.Join(dir, "missing.rego")}},
			fs.ErrNotExist},
		"both built-in and own": {policies.Config{Paths: append(builtin(), at(t, module("default allow := true"))...)},
			policies.ErrInvalid},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, err := policies.Load(tt.cfg)
			if err == nil || e != nil || tt.want != nil && !errors.Is(err, tt.want) {
				t.Errorf("Load = %v, %v, want nil, %v", e, err, tt.want)
			}
		})
	}
}

// What belongs to a directory's policy, and where data is found.
func TestLoadDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "p.rego"), "package muster.enroll\n\nimport data.lib\n\ndefault allow := false\n\n"+
		"allow if lib.good\n\nconfiguration := {\"a\": data.a, \"c\": data.c}\n")
	write(t, filepath.Join(dir, "lib", "lib.rego"), "package lib\n\ngood if data.a == \"1\"\n")
	write(t, filepath.Join(dir, "data.json"), `{"a":"1"}`)
	write(t, filepath.Join(dir, "data.yaml"), "c: \"3\"\n")
	// None of these is read; each would be refused.
	for _, name := range []string{"README.md", "other.json", ".hidden.rego", ".git/x.rego", "p.rego~", "p.rego.swp",
		"..data_tmp/p.rego"} {
		write(t, filepath.Join(dir, name), "this is no policy")
	}
	e, err := policies.Load(policies.Config{Paths: []string{dir}})
	if err != nil {
		t.Fatal(err)
	}
	d, err := e.Decide(t.Context(), stranger())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"a": "1", "c": "3"}, d.Configuration); !d.Allow || diff != "" {
		t.Errorf("Decide = %+v: -want +got\n%s", d, diff)
	}
}

func TestLoadFollowsLinks(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	write(t, filepath.Join(base, "real", "p.rego"), allowAll)
	for link, target := range map[string]string{"dir": "real", "file.rego": "real/p.rego"} {
		if err := os.Symlink(target, filepath.Join(base, link)); err != nil {
			t.Fatal(err)
		}
		if _, err := policies.Load(policies.Config{Paths: []string{filepath.Join(base, link)}}); err != nil {
			t.Errorf("Load of a link to %s: %v", target, err)
		}
	}
}

func TestDigest(t *testing.T) {
	t.Parallel()
	of := func(files map[string]string) string {
		t.Helper()
		dir := t.TempDir() // a new place every time
		for name, content := range files {
			write(t, filepath.Join(dir, name), content)
		}
		e, err := policies.Load(policies.Config{Paths: []string{dir}})
		if err != nil {
			t.Fatal(err)
		}
		return e.Digest()
	}
	base := of(map[string]string{"p.rego": allowAll})
	if len(base) != 64 {
		t.Errorf("Digest = %q, want 64 characters of hex", base)
	}
	for name, files := range map[string]map[string]string{
		"somewhere else": {"p.rego": allowAll},
		"with tests":     {"p.rego": allowAll, "p_test.rego": "package muster.enroll_test\n\ntest_x := true\n"},
	} {
		if got := of(files); got != base {
			t.Errorf("digest of the same policy %s = %s, want %s", name, got, base)
		}
	}
	seen := map[string]string{base: "the first"}
	for name, files := range map[string]map[string]string{
		"other text":      {"p.rego": allowAll + "\n"},
		"other name":      {"q.rego": allowAll},
		"more modules":    {"p.rego": allowAll, "q.rego": "package q\n\nx := 1\n"},
		"with data":       {"p.rego": allowAll, "data.json": `{}`},
		"with other data": {"p.rego": allowAll, "data.json": `{"a":1}`},
	} {
		got := of(files)
		if other, twice := seen[got]; twice {
			t.Errorf("digest of the policy with %s is that of %s", name, other)
		}
		seen[got] = name
	}
}

// A member that is misspelled looks like a helper that nothing uses.
func TestLoadWarns(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	_, err := policies.Load(policies.Config{
		Log: slog.New(slog.NewTextHandler(&b, nil)),
		Paths: at(t, module("default allow := false\n\nallow if helper(1)\n\nhelper(x) if x == 1\n\nfine := "+
			"2\n\nreasons contains sprintf(\"%d\", [fine])\n\n"+
			"denied contains \"x\" if input.facts.bad\n\ndenied contains \"y\" if input.facts.worse\n")),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"p.rego:13: muster.enroll.denied", "p.rego:15: muster.enroll.denied", "no tests"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no warning about %q in\n%s", want, &b)
		}
	}
	if n := strings.Count(b.String(), "\n"); n != 3 {
		t.Errorf("%d warnings, want 3:\n%s", n, &b)
	}
}

func TestTest(t *testing.T) {
	t.Parallel()
	files := fstest.MapFS{
		"p.rego": {Data: []byte(allowAll)},
		"p_test.rego": {Data: []byte(
			"package muster.enroll_test\n\nimport data.muster.enroll\n\ntest_good if enroll.allow\n\n" +
				"test_bad if {\n\tprint(\"here\")\n\tnot enroll.allow\n}\n\ntodo_test_later if false\n")},
	}
	got, _, err := policies.Test(t.Context(), policies.Config{Paths: at(t, files)})
	if err != nil {
		t.Fatal(err)
	}
	for i := range got {
		got[i].Elapsed, got[i].File = 0, filepath.Base(got[i].File)
	}
	want := []policies.TestResult{
		{Name: "data.muster.enroll_test.test_good", File: "p_test.rego", Line: 5, Result: "pass"},
		{Name: "data.muster.enroll_test.test_bad", File: "p_test.rego", Line: 7, Result: "fail", Output: "here\n"},
		{Name: "data.muster.enroll_test.todo_test_later", File: "p_test.rego", Line: 12, Result: "skip"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Test: -want +got\n%s", diff)
	}
	if _, err := policies.Load(policies.Config{Paths: at(t, files)}); !errors.Is(err, policies.ErrInvalid) {
		t.Errorf("Load = %v, want %v", err, policies.ErrInvalid)
	}
	broken := policies.Config{Paths: at(t, fstest.MapFS{"p.rego": {Data: []byte("package")}})}
	if _, _, err := policies.Test(t.Context(), broken); !errors.Is(err, policies.ErrInvalid) {
		t.Errorf("Test of what does not compile = %v, want %v", err, policies.ErrInvalid)
	}
}
