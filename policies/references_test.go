package policies_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"muster/policies"
)

// TestMissingDataIsRefused has every way in which a policy names data that is not there: it would be an empty list, and a
// denial would never apply.
func TestMissingDataIsRefused(t *testing.T) {
	t.Parallel()
	deny := func(if_ string) string {
		return "package muster.enroll\n\ndefault allow := true\n\ndeny contains \"banned\" if " + if_ + "\n"
	}
	const banned = `input.identity in data.banned`
	const test = "package muster.enroll_test\n\nimport data.muster.enroll\n\n"
	for name, tt := range map[string]struct {
		files map[string]string
		says  string // "": it can be used
	}{
		"data under another name": {map[string]string{"p.rego": deny(banned), "banned.json": `{"banned":["x"]}`},
			"banned.json is not read: want *.rego, data.json, data.yaml or data.yml"},
		"no data at all": {map[string]string{"p.rego": deny(banned)},
			"p.rego:5: rego_type_error: data.banned is in no rule and in no data file"},
		"other data":      {map[string]string{"p.rego": deny(banned), "data.json": `{"baned":["x"]}`}, "data.banned is in no"},
		"empty data":      {map[string]string{"p.rego": deny(banned), "data.json": `{}`}, "data.banned is in no"},
		"data file empty": {map[string]string{"p.rego": deny(banned), "data.json": ``}, "data.json"},
		"YAML empty":      {map[string]string{"p.rego": deny(banned), "data.yaml": "# later\n"}, "is of type null, want an object"},
		"YAML, entries commented out": {map[string]string{"p.rego": deny(banned), "data.yaml": "banned:\n# - x\n"},
			"data.banned in the data file is null: give it a value, such as []"},
		"an array with a constant": {map[string]string{"p.rego": deny("data.banned.web1"),
			"data.json": `{"banned":["web1"]}`}, "data.banned.web1 is in no rule and in no data file"},
		"a member below": {map[string]string{"p.rego": deny("input.identity in data.sites.ams.banned"),
			"data.json": `{"sites":{"fra":{"banned":[]}}}`}, "data.sites.ams is in no rule"},
		"imported":     {map[string]string{"p.rego": "package muster.enroll\n\nimport data.banned\n\ndefault allow := true\n\ndeny contains \"x\" if input.identity in banned\n"}, "data.banned is in no"},
		"in brackets":  {map[string]string{"p.rego": deny(`input.identity in data["banned"]`)}, "data.banned is in no"},
		"with a key":   {map[string]string{"p.rego": deny(`data.banned[input.identity]`)}, "data.banned is in no"},
		"with a local": {map[string]string{"p.rego": deny("{ some i; data.banned[i] == input.identity }")}, "data.banned is in no"},
		"in a comprehension": {map[string]string{"p.rego": deny("count({x | some x in data.banned; x == input.identity}) > 0")},
			"data.banned is in no"},
		"in a call":         {map[string]string{"p.rego": deny(`object.get(data.banned, input.identity, false)`)}, "data.banned is in no"},
		"in every":          {map[string]string{"p.rego": deny(`every x in data.banned { x != input.identity }`)}, "data.banned is in no"},
		"under not":         {map[string]string{"p.rego": deny(`not input.identity in data.known`)}, "data.known is in no"},
		"in a head":         {map[string]string{"p.rego": "package muster.enroll\n\ndefault allow := true\n\nconfiguration := data.settings\n"}, "data.settings is in no"},
		"in else":           {map[string]string{"p.rego": "package muster.enroll\n\nallow := true if input.facts.a else := data.open\n"}, "data.open is in no"},
		"in a library":      {map[string]string{"p.rego": deny("data.lib.bad"), "lib.rego": "package lib\n\nbad if " + banned + "\n"}, "lib.rego:3"},
		"a rule no more":    {map[string]string{"p.rego": deny("data.lib.bad"), "lib.rego": "package lib\n\nworse := 1\n"}, "data.lib.bad is in no"},
		"a misspelled rule": {map[string]string{"p.rego": deny("data.muster.enroll.denyed")}, "data.muster.enroll.denyed is in no"},
		"in a test": {map[string]string{"p.rego": deny("false"), "p_test.rego": test + "test_x if not enroll.denyed\n"},
			"p_test.rego:5: rego_type_error: data.muster.enroll.denyed is in no"},
		"mocked in tests alone": {map[string]string{"p.rego": deny(banned),
			"p_test.rego": test + "test_x if enroll.deny with data.banned as [\"x\"] with input.identity as \"x\"\n"},
			"p.rego:5: rego_type_error: data.banned is in no"},
		"input misspelled": {map[string]string{"p.rego": deny(`input.identiy == "x"`)}, "identiy"},
		"Rego of before 1.0": {map[string]string{"p.rego": "package muster.enroll\n\nallow { input.identity }\n"},
			"p.rego:3: rego_parse_error: `if` keyword is required before rule body; " +
				"it is Rego of before version 1.0: rewrite it with `opa fmt --v0-v1 --write "},
		"no Rego of any version": {map[string]string{"p.rego": "package muster.enroll\n\nallow if {\n"}, "p.rego:4"},

		"a member of no element": {map[string]string{"p.rego": deny("{ some i; input.identity in data.sites[i].baned }"),
			"data.json": `{"sites":[{"banned":["x"]},{"name":"ams"}]}`}, "undefined ref: data.sites[i].baned"},
		"behind a local": {map[string]string{"p.rego": deny("{ some site in data.sites; input.identity in site.baned }"),
			"data.json": `{"sites":[{"banned":["x"]}]}`}, "undefined ref: site.baned"},
		"behind a rule": {map[string]string{"p.rego": deny("input.identity in lists.baned") + "\nlists := data.lists\n",
			"data.json": `{"lists":{"banned":["x"]}}`}, "undefined ref: data.muster.enroll.lists.baned"},
		"in no value of an object": {map[string]string{"p.rego": deny("input.identity in data.sites[input.source.site].baned"),
			"data.json": `{"sites":{"ams":{"banned":["x"]},"fra":{"name":"x"}}}`}, "undefined ref: data.sites[input.source.site].baned"},

		"a member of some elements": {map[string]string{"p.rego": deny("{ some site in data.sites; input.identity in site.banned }"),
			"data.json": `{"sites":[{"banned":["x"]},{"name":"ams"}, {"name":1}]}`}, ""},
		"elements of several kinds": {map[string]string{"p.rego": deny("{ some x in data.banned; x.name == input.identity }"),
			"data.json": `{"banned":["x",{"name":"y"},null,[1]]}`}, ""},
		"data replaced in a test": {map[string]string{"p.rego": deny("{ some site in data.sites; input.identity in site.banned }"),
			"p_test.rego": test + "test_x if enroll.deny with data.sites as {\"ams\": {\"banned\": {\"x\"}}} with input.identity as \"x\"\n",
			"data.json":   `{"sites":[{"banned":["x"]}]}`}, ""},
		"data beside rules": {map[string]string{"p.rego": deny("data.lib.bad[data.lib.own]"), "lib.rego": "package lib\n\nbad[x] := 1 if some x in {\"c\"}\n",
			"data.json": `{"lib":{"own":"x"}}`}, ""},
		"an empty list":     {map[string]string{"p.rego": deny(banned), "data.json": `{"banned":[]}`}, ""},
		"an object":         {map[string]string{"p.rego": deny("data.banned[input.identity]"), "data.json": `{"banned":{}}`}, ""},
		"an array's index":  {map[string]string{"p.rego": deny("data.banned[_] == input.identity"), "data.json": `{"banned":["x"]}`}, ""},
		"a number":          {map[string]string{"p.rego": deny("input.token.uses > data.most"), "data.json": `{"most":2}`}, ""},
		"two data files":    {map[string]string{"p.rego": deny(banned), "data.json": `{}`, "data.yaml": "banned: [x]\n"}, ""},
		"rules of packages": {map[string]string{"p.rego": deny("data.lib[input.facts.a]"), "lib.rego": "package lib\n\nbad if input.facts.b\n"}, ""},
		"dotted rules":      {map[string]string{"p.rego": deny("data.lib.a.b.c"), "lib.rego": "package lib\n\na.b[x] := 1 if some x in {\"c\"}\n"}, ""},
		"functions":         {map[string]string{"p.rego": deny("data.lib.f(input.identity)"), "lib.rego": "package lib\n\nf(x) if x == \"a\"\n"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for file, content := range tt.files {
				write(t, filepath.Join(dir, file), content)
			}
			_, err := policies.Load(policies.Config{Paths: []string{dir}})
			_, _, tested := policies.Test(t.Context(), policies.Config{Paths: []string{dir}})
			if tt.says == "" {
				if err != nil || tested != nil {
					t.Errorf("Load = %v, Test = %v, want no error", err, tested)
				}
				return
			}
			for what, err := range map[string]error{"Load": err, "Test": tested} {
				if !errors.Is(err, policies.ErrInvalid) || !strings.Contains(err.Error(), tt.says) ||
					strings.Contains(tt.says, "is in no rule") && strings.Contains(err.Error(), "undefined ref") {
					t.Errorf("%s = %v, want %v with %q", what, err, policies.ErrInvalid, tt.says)
				}
			}
		})
	}
}
