package testbed_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/provisioner/events"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const eventsHead = `# Events

What happens in a fleet is reported as [CloudEvents 1.0](https://cloudevents.io). Provisioners report to the stream
` + "`MUSTER_EVENTS`" + `, nodes of the fleet to ` + "`MUSTER_LIFECYCLE`" + ` and ` + "`MUSTER_ALIVE`" + `; what proves nothing about
its sender is in ` + "`MUSTER_ATTEMPTS`" + `. People read them with ` + "`muster events`" + `, programs with
` + "`muster events --json`" + ` and ` + "`GET /v1/events`" + ` on the control socket and over HTTPS.

Events are reports; the truth is in the records. A power failure may lose the last moment of them. The oldest go when
their stream is full: 1 GiB, 256 MiB for lifecycles with 201 of a type for each node, 64 MiB for attempts, on a small
disk an eighth and a thirty-second of what the store may take. Of ` + "`alive`" + ` the last one of each node is kept. Events
hold no secret. Types and members keep their names and meanings; new ones may come, so ignore what you do not know.
` + "`time`" + ` is of the provisioner's clock, or of the node's in what it reports itself (` + "`io.muster.server.*`" + `);
` + "`recordedtime`" + ` is when the broker stored the event.

An order of an operator is an event once the store has acknowledged it, from the provisioner that was asked. An order that
ended with an error may have happened without an event; it is the same to give it again.

## GET /v1/events

Server-sent events, or JSON lines with ` + "`Accept: application/x-ndjson`" + `. It goes on with what happens, until either side ends it.

| parameter | what |
|---|---|
| ` + "`since`" + ` | begin at this time, RFC 3339 |
| ` + "`Last-Event-ID`" + ` (header), ` + "`after`" + ` | go on behind the event with this ` + "`id`" + ` of the server-sent stream (JSON lines have none); ` + "`since`" + ` does not count then. If the log was lost since and begun anew, all of the new one comes |
| | without either, only what happens from now on |
| ` + "`type`" + `, ` + "`node`" + `, ` + "`code`" + ` | only events whose type begins so, of this node, with this code |
| ` + "`once=true`" + ` | end with the newest event |

A reader that takes nothing for ten seconds is cut off: nothing is kept for it, and it goes on from its last id. An event may come twice after
that; its ` + "`id`" + ` member tells.

## Webhooks

An endpoint of ` + "`webhooks`" + ` in provisioner.yaml gets each event of its types as an HTTPS POST. The body is the event
as below, of type ` + "`application/cloudevents+json`" + `, signed by the scheme of
[Standard Webhooks](https://www.standardwebhooks.com), for which there are libraries.

| header | what |
|---|---|
| ` + "`webhook-id`" + ` | the same each time that an event comes, and no other event's |
| ` + "`webhook-timestamp`" + ` | seconds since 1970, of this attempt: refuse what is more than five minutes off |
| ` + "`webhook-signature`" + ` | for each secret ` + "`v1,`" + ` and the base64 of HMAC-SHA256 over id, dot, timestamp, dot, body; blanks between |

An answer of 200 to 299 is a delivery. Anything else, a redirect too, is tried again for 72 hours: after 5 s, then twice
as long each time up to ten minutes, a quarter more or less by chance, and not before the seconds of ` + "`Retry-After`" + `
are over, ten minutes of them at most. An event comes at least once, and may overtake another.
` + "`examples/webhook`" + ` is an endpoint in Go.

## Members of data

| member | type | what |
|---|---|---|
`

// document returns docs/events.md as the tables say.
func document(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	b.WriteString(eventsHead)
	for _, m := range events.Members {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", m.Name, m.Type, m.What)
	}
	b.WriteString("\n## Types\n")
	for i := range events.Types {
		m := &events.Types[i]
		fmt.Fprintf(&b, "\n### %s\n\n%s\n\n", m.Type, m.What)
		if len(m.Sometimes) > 0 {
			fmt.Fprintf(&b, "It may lack `%s`.\n\n", strings.Join(m.Sometimes, "`, `"))
		}
		fmt.Fprintf(&b, "```json\n%s\n```\n", example(t, m))
	}
	return b.Bytes()
}

// example returns an event of the type with all that it may have.
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
	b, err := json.MarshalIndent(&events.Stored{SpecVersion: "1.0", ID: "hV0dS4qQ2mX9", Source: "io.muster.provisioner/ffb2a0c1",
		Type: m.Type, Subject: subject, Time: time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC), DataContentType: "application/json", Data: raw}, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestEventsAreDocumented holds docs/events.md to the table of events, and its
// examples to their schemas.
func TestEventsAreDocumented(t *testing.T) {
	t.Parallel()
	for i := range events.Types {
		if err := testbed.CheckEvent(example(t, &events.Types[i])); err != nil {
			t.Errorf("example of %s: %v", events.Types[i].Type, err)
		}
	}
	const path = "../../docs/events.md"
	want := document(t)
	if *update {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("docs/events.md is not what the table says: go test ./internal/testbed -run TestEventsAreDocumented -update")
	}
}

// TestNoEventIsMissing finds every constant of type Type in package
// events in its table.
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

// TestEventsOtherThanDocumentedFail shows that the check of emitted events is
// one: a member that is missing, one that nobody knows, and a type likewise.
func TestEventsOtherThanDocumentedFail(t *testing.T) {
	t.Parallel()
	const event = `{"specversion":"1.0","id":"1","source":"s","type":"%s","time":"2026-11-22T10:00:00Z","datacontenttype":"application/json","data":%s}`
	for name, c := range map[string]struct{ typ, data string }{
		"missing": {"io.muster.token.revoked", `{"by":"ada"}`}, "unknown": {"io.muster.token.revoked", `{"token_id":"1","secret":"x"}`},
		"type": {"io.muster.token.forgotten", `{"token_id":"1"}`},
	} {
		if err := testbed.CheckEvent(fmt.Appendf(nil, event, c.typ, c.data)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if err := testbed.CheckEvent(fmt.Appendf(nil, event, "io.muster.token.revoked", `{"token_id":"1","by":"ada"}`)); err != nil {
		t.Error(err)
	}
}
