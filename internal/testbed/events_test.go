package testbed_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/internal/testdoc"
	"muster/provisioner/events"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// generatedEvents returns the tables of docs/reference/events.md.
func generatedEvents(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("\n## Types\n\n| type | when | members | may be absent |\n|---|---|---|---|\n")
	for i := range events.Types {
		m := &events.Types[i]
		always, sometimes := strings.Join(m.Always, "` `"), strings.Join(m.Sometimes, "` `")
		fmt.Fprintf(&b, "| `%s` | %s | `%s` | `%s` |\n", m.Type, m.What, always, sometimes)
	}
	b.WriteString("\n## Members of data\n\n| member | type | meaning |\n|---|---|---|\n")
	for _, m := range events.Members {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", m.Name, m.Type, m.What)
	}
	fmt.Fprintf(&b, "\n## Example\n\n```json\n%s\n```\n", example(t, &events.Types[0]))
	return strings.ReplaceAll(b.String(), "| `` |", "| |")
}

// example returns an event of the type with all its members.
func example(t *testing.T, m *events.Meaning) []byte {
	t.Helper()
	data := map[string]any{}
	subject := ""
	for _, member := range events.Members {
		if !slices.Contains(m.Always, member.Name) && !slices.Contains(m.Sometimes, member.Name) {
			continue
		}
		data[member.Name] = member.Example
		if member.Name == "node" || member.Name == "identity" {
			subject, _ = member.Example.(string)
		}
	}
	raw, err := json.Marshal(data)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.MarshalIndent(&events.Stored{SpecVersion: "1.0", ID: "hV0dS4qQ2mX9",
		Source: "io.muster.provisioner/ffb2a0c1",
		Type:   m.Type, Subject: subject, Time: time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC),
		DataContentType: "application/json", Data: raw}, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// docs/reference/events.md matches the table of events, and an example of each type its members.
func TestEventsAreDocumented(t *testing.T) {
	t.Parallel()
	for i := range events.Types {
		if err := testbed.CheckEvent(example(t, &events.Types[i])); err != nil {
			t.Errorf("example of %s: %v", events.Types[i].Type, err)
		}
	}
	testdoc.Generated(t, "../../docs/reference/events.md", *update, generatedEvents(t))
}

// Every constant of type Type in package events is in its table.
func TestNoEventIsMissing(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../provisioner/events/*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	found := 0
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			if typ, ok := spec.Type.(*ast.Ident); !ok || typ.Name != "Type" {
				return true
			}
			found++
			switch v := spec.Values[0].(type) {
			case *ast.BasicLit:
				text, err := strconv.Unquote(v.Value)
				if err != nil {
					t.Fatal(err)
				}
				if events.MeaningOf(events.Type(text)) == nil {
					t.Errorf("%s is not in EventTypes", spec.Names[0].Name)
				}
			case *ast.BinaryExpr:
				text, err := strconv.Unquote(v.Y.(*ast.BasicLit).Value)
				if err != nil || events.MeaningOf(events.Type("io.muster.server."+text)) == nil {
					t.Errorf("%s is not in EventTypes: %v", spec.Names[0].Name, err)
				}
			}
			return true
		})
	}
	if found != len(events.Types) {
		t.Errorf("%d constants, and %d types in the table", found, len(events.Types))
	}
}

// The check of emitted events finds missing and unknown members, and wrong types.
func TestUndocumentedEventsFail(t *testing.T) {
	t.Parallel()
	const event = `{"specversion":"1.0","id":"1","source":"s","type":"%s","time":"2026-11-22T10:00:00Z","datacontenttype":"application/json","data":%s}`
	for name, c := range map[string]struct{ typ, data string }{
		"missing": {"io.muster.token.revoked", `{"by":"ada"}`},
		"unknown": {"io.muster.token.revoked", `{"token_id":"1","secret":"x"}`},
		"type":    {"io.muster.token.forgotten", `{"token_id":"1"}`},
	} {
		if err := testbed.CheckEvent(fmt.Appendf(nil, event, c.typ, c.data)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if err := testbed.CheckEvent(fmt.Appendf(nil, event, "io.muster.token.revoked",
		`{"token_id":"1","by":"ada"}`)); err != nil {
		t.Error(err)
	}
}
