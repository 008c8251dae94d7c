package wire_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/internal/testdoc"
	"muster/internal/wire"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden are the messages of docs/reference/protocol.md. Do not edit files of a released version: other programs
// send them.
var golden = map[string]any{
	"enroll.json": &wire.EnrollRequest{
		ID: "f3VhqEUyQm6yXv2Vw0aJ9A", Identity: "web1.example.net", Token: "eyJhbGciOiJSUzI1NiJ9.eyJ9.c2ln", CSR: []byte("DER"),
		Facts: json.RawMessage(`{"role":"web"}`), Agent: "muster-server 0.1.0", Boot: "4b7mS1WcT2GdX8QqYkz3Rw",
	},
	"renew.json": &wire.RenewRequest{
		ID: "u2Jq6N0bR7mC1xT9aK4wEg", Identity: "web1.example.net", CSR: []byte("DER"),
		Facts: json.RawMessage(`{"role":"web"}`), Agent: "muster-server 0.1.0", Boot: "4b7mS1WcT2GdX8QqYkz3Rw",
		Continuity: wire.Continuity{PublicKey: []byte("SPKI"), Signature: []byte("signature")},
	},
	"certificate-issue.json": &wire.CertificateRequest{
		ID: "Q7dLw2Zc9VnT4sHk1RjY5A", Identity: "web1.example.net", Name: "haproxy", Verb: wire.CertificateIssue,
		CSR: []byte("DER"), Network: "internal", Source: "file", Replaces: "5b1f0c6de2a94c0f8d3b7a6e9c2d1f40",
	},
	"certificate-revoke.json": &wire.CertificateRequest{
		ID: "t8Xb3Mq6KvN0yPd2WfG7uQ", Identity: "web1.example.net", Name: "haproxy", Verb: wire.CertificateRevoke,
		Source: "file",
	},
	"certificate-report.json": &wire.CertificateRequest{
		ID: "L1gSe5Ao8RwU6iJz4CxB9g", Identity: "web1.example.net", Name: "haproxy", Verb: wire.CertificateReport,
		Source: "file", Report: &wire.CertificateState{State: "saved", Stuck: true, Error: "action reload: exit status 1",
			Since: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)},
	},
	"reply-certificate.json": &wire.Reply{
		ID: "Q7dLw2Zc9VnT4sHk1RjY5A", Installation: "Qm9vdHN0cmFwcGVkSGVyZQ",
		Certificate: &wire.ServiceCertificate{Name: "haproxy", Serial: "c27a90e84b1d4f3a9e6508d7b3f2a651",
			Certificate: "-----BEGIN CERTIFICATE-----\n", CA: "-----BEGIN CERTIFICATE-----\n"},
		Provisioner: [][]byte{[]byte("DER"), []byte("DER"), []byte("DER")}, Signature: []byte("signature"),
	},
	"applied.json": &wire.Applied{
		ID: "Zb0Jm1v2QnGm0x7y5k3T1g", Identity: "web1.example.net", Serial: "5b1f0c6de2a94c0f8d3b7a6e9c2d1f40",
		Digest: "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", Signature: []byte("signature"),
		ReceiptSum: "6ca13d52ca70c883e0f0bb101e425a89e8624de51db2d2392593af6a84118090",
	},
	"applied-unusable.json": &wire.Applied{
		ID: "k5Wn8Yr2TbV7qL0zH3mJ6A", Identity: "web1.example.net", Serial: "5b1f0c6de2a94c0f8d3b7a6e9c2d1f40",
		Digest: wire.Unusable("9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
			`log_level: is "loud"`),
		Signature: []byte("signature"),
	},
	"command-question.json": &wire.Command{ID: "h7Kd2Lw9QmS4vB1nX8cR5g", Identity: "web1.example.net",
		Verb: wire.VerbReprovision},
	"command-answer-nonce.json": &wire.CommandReply{ID: "h7Kd2Lw9QmS4vB1nX8cR5g", Nonce: "p0Yt6Vz3JfE2uN9aC7iO1w"},
	"command-proof.json": &wire.Command{ID: "h7Kd2Lw9QmS4vB1nX8cR5g", Identity: "web1.example.net",
		Verb:  wire.VerbReprovision,
		Nonce: "p0Yt6Vz3JfE2uN9aC7iO1w", Proof: []byte("an HMAC-SHA256 has 32 bytes ....")},
	"command-answer-accepted.json": &wire.CommandReply{ID: "h7Kd2Lw9QmS4vB1nX8cR5g", Accepted: &wire.CommandAccepted{}},
	"reply-enrolled.json": &wire.Reply{
		ID: "f3VhqEUyQm6yXv2Vw0aJ9A", Installation: "Qm9vdHN0cmFwcGVkSGVyZQ",
		Enrolled: &wire.Enrolled{
			Serial: "5b1f0c6de2a94c0f8d3b7a6e9c2d1f40", Certificate: "-----BEGIN CERTIFICATE-----\n", CA: "-----BEGIN CERTIFICATE-----\n",
			Files: wire.Files{Configuration: map[string]string{"brokers": "nats://broker.example.net:4222"},
				ActionPolicies: map[string]string{"rpcutil": "policy default deny\n"}},
			Digest:     "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
			ReceiptSum: "6ca13d52ca70c883e0f0bb101e425a89e8624de51db2d2392593af6a84118090",
		},
		Provisioner: [][]byte{[]byte("DER"), []byte("DER"), []byte("DER")}, Signature: []byte("signature"),
	},
	"reply-applied.json": &wire.Reply{
		ID: "Zb0Jm1v2QnGm0x7y5k3T1g", Installation: "Qm9vdHN0cmFwcGVkSGVyZQ",
		Applied: &wire.Accepted{Serial: "5b1f0c6de2a94c0f8d3b7a6e9c2d1f40", Receipt: "abc123"},
	},
	"reply-refusal.json": &wire.Reply{
		ID: "f3VhqEUyQm6yXv2Vw0aJ9A", Installation: "Qm9vdHN0cmFwcGVkSGVyZQ",
		Refusal: &wire.Refusal{Code: wire.CodeApprovalPending, Message: wire.MeaningOf(wire.CodeApprovalPending).Public,
			Remedy: wire.MeaningOf(wire.CodeApprovalPending).Remedy, RetryAfter: 20_000},
	},
	"reply-version.json": &wire.Reply{
		Installation: "Qm9vdHN0cmFwcGVkSGVyZQ",
		Refusal: &wire.Refusal{Code: wire.CodeUnsupportedVersion,
			Message: wire.MeaningOf(wire.CodeUnsupportedVersion).Public,
			Remedy:  wire.MeaningOf(wire.CodeUnsupportedVersion).Remedy, RetryAfter: 300_000, Versions: []int{1}},
	},
}

// decode decodes a golden file by its name.
func decode(name string, b []byte) (any, error) {
	switch {
	case strings.HasPrefix(name, "enroll"):
		return wire.DecodeEnroll(b)
	case strings.HasPrefix(name, "renew"):
		return wire.DecodeRenew(b)
	case strings.HasPrefix(name, "certificate"):
		return wire.DecodeCertificate(b)
	case strings.HasPrefix(name, "applied"):
		return wire.DecodeApplied(b)
	case strings.HasPrefix(name, "command-answer"):
		return wire.DecodeCommandReply(b)
	case strings.HasPrefix(name, "command"):
		return wire.DecodeCommand(b)
	default:
		return wire.DecodeReply(b)
	}
}

func TestGoldenMessages(t *testing.T) {
	t.Parallel()
	for name, message := range golden {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join("testdata", name)
			encoded, err := wire.Encode(message)
			if err != nil {
				t.Fatal(err)
			}
			var pretty bytes.Buffer
			if err := json.Indent(&pretty, encoded, "", "  "); err != nil {
				t.Fatal(err)
			}
			pretty.WriteByte('\n')
			if *update {
				if err := os.WriteFile(path, pretty.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), pretty.String()); diff != "" {
				t.Errorf("encoding changed (-golden +now):\n%s", diff)
			}
			got, err := decode(name, want)
			if err != nil {
				t.Fatalf("the golden file is refused: %v", err)
			}
			again, err := wire.Encode(got)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(encoded), string(again)); diff != "" {
				t.Errorf("decoded and encoded again (-want +got):\n%s", diff)
			}
		})
	}
}

// TestProtocolDocument checks that protocol.md has exactly the golden messages.
func TestProtocolDocument(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../docs/reference/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	for name := range golden {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(doc), "```json\n"+string(b)+"```") {
			t.Errorf("docs/reference/protocol.md does not show %s as it is", name)
		}
	}
}

func TestCodesAreDocumented(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("| code | message to the node | remedy |\n|---|---|---|\n")
	for _, c := range slices.Sorted(maps.Keys(wire.Codes)) {
		m := wire.MeaningOf(c)
		told := ""
		if m.SentAs != "" {
			told = " (the node is told `" + string(m.SentAs) + "`)"
		}
		b.WriteString("| `" + string(c) + "` | " + m.Public + " | " + m.Remedy + told + " |\n")
	}
	testdoc.Generated(t, "../../docs/reference/codes.md", *update, b.String())
}

func TestDecodersRefuse(t *testing.T) {
	t.Parallel()
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	enroll, applied, refusal := read("enroll.json"), read("applied.json"), read("reply-refusal.json")
	issue, report := read("certificate-issue.json"), read("certificate-report.json")
	swap := func(s, old, replacement string) string {
		if !strings.Contains(s, old) {
			t.Fatalf("fixture lacks %s", old)
		}
		return strings.Replace(s, old, replacement, 1)
	}
	tests := map[string]struct {
		name, text string
		want       error
	}{
		"later version, other members": {"enroll", `{"v":2,"anything":true}`, wire.ErrVersion},
		"no version":                   {"enroll", swap(enroll, `"v": 1,`, ``), wire.ErrMessage},
		"version as text":              {"enroll", swap(enroll, `"v": 1,`, `"v": "1",`), wire.ErrMessage},
		"sealed without ciphertext":    {"enroll", swap(enroll, `"sealed": false`, `"sealed": true`), wire.ErrMessage},
		"sealed":                       {"enroll", `{"v":1,"sealed":true,"key":"k","enc":"AA==","ct":"AA=="}`, wire.ErrSealed},
		"plain and sealed at once":     {"enroll", swap(enroll, `"sealed": false,`, `"sealed": false,"ct":"AA==",`), wire.ErrMessage},
		"unknown member in envelope":   {"enroll", swap(enroll, `"v": 1,`, `"v": 1, "x": 1,`), wire.ErrMessage},
		"unknown member in message":    {"enroll", swap(enroll, `"agent"`, `"x": 1, "agent"`), wire.ErrMessage},
		"member twice":                 {"enroll", swap(enroll, `"agent"`, `"identity":"db.example.net","agent"`), wire.ErrMessage},
		"trailing data":                {"enroll", enroll + "{}", wire.ErrMessage},
		"request id with a wildcard":   {"enroll", swap(enroll, `f3VhqEUyQm6yXv2Vw0aJ9A`, `>`), wire.ErrMessage},
		"no boot instance":             {"enroll", swap(enroll, `4b7mS1WcT2GdX8QqYkz3Rw`, ``), wire.ErrMessage},
		"facts that are a list": {"enroll", swap(enroll, `{
      "role": "web"
    }`, `[1]`), wire.ErrMessage},
		"token too long":                  {"enroll", swap(enroll, `eyJhbGci`, strings.Repeat("e", wire.MaxTokenBytes)), wire.ErrTooLarge},
		"message too long":                {"enroll", strings.Repeat(" ", wire.MaxMessageBytes) + enroll, wire.ErrTooLarge},
		"array":                           {"enroll", `[]`, wire.ErrMessage},
		"null":                            {"enroll", `null`, wire.ErrMessage},
		"confirmation without id":         {"applied", swap(applied, `Zb0Jm1v2QnGm0x7y5k3T1g`, ``), wire.ErrMessage},
		"reply that is nothing":           {"reply", `{"v":1,"sealed":false,"body":{"id":"x","installation":"y"}}`, wire.ErrMessage},
		"reply that is two things":        {"reply", swap(refusal, `"refusal"`, `"applied":{"serial":"1"},"refusal"`), wire.ErrMessage},
		"success without a request id":    {"reply", `{"v":1,"sealed":false,"body":{"id":"","installation":"y","applied":{"serial":"1"}}}`, wire.ErrMessage},
		"enrolled with unknown member":    {"reply", swap(read("reply-enrolled.json"), `"digest"`, `"x":1,"digest"`), wire.ErrMessage},
		"certificate without a name":      {"certificate", swap(issue, `"haproxy"`, `""`), wire.ErrMessage},
		"certificate named like a path":   {"certificate", swap(issue, `"haproxy"`, `"../haproxy"`), wire.ErrMessage},
		"certificate named like a flag":   {"certificate", swap(issue, `"haproxy"`, `"-x"`), wire.ErrMessage},
		"certificate of 65 characters":    {"certificate", swap(issue, `"haproxy"`, `"`+strings.Repeat("x", 65)+`"`), wire.ErrMessage},
		"certificate's unknown verb":      {"certificate", swap(issue, `"issue"`, `"delete"`), wire.ErrMessage},
		"certificate without a CSR":       {"certificate", swap(issue, `"csr": "REVS",`, ``), wire.ErrMessage},
		"certificate's CSR too long":      {"certificate", swap(issue, `"REVS"`, `"`+strings.Repeat("REVS", wire.MaxCSRBytes/3+1)+`"`), wire.ErrTooLarge},
		"certificate's CSR to revoke":     {"certificate", swap(issue, `"issue"`, `"revoke"`), wire.ErrMessage},
		"certificate's odd source":        {"certificate", swap(issue, `"file"`, `"facts"`), wire.ErrMessage},
		"certificate's odd network":       {"certificate", swap(issue, `"internal"`, `"a b"`), wire.ErrMessage},
		"certificate's odd usage":         {"certificate", swap(issue, `"source"`, `"usages":["ca"],"source"`), wire.ErrMessage},
		"certificate's usage twice":       {"certificate", swap(issue, `"source"`, `"usages":["server","server"],"source"`), wire.ErrMessage},
		"certificate's odd serial":        {"certificate", swap(issue, `"5b1f`, `"5B1F`), wire.ErrMessage},
		"certificate with another member": {"certificate", swap(issue, `"source"`, `"dns_names":["x"],"source"`), wire.ErrMessage},
		"report without a state":          {"certificate", swap(report, `"saved"`, `""`), wire.ErrMessage},
		"report with an unknown state":    {"certificate", swap(report, `"saved"`, `"hacked"`), wire.ErrMessage},
		"report of two lines":             {"certificate", swap(report, `exit status 1`, `exit\nstatus 1`), wire.ErrMessage},
		"report too long":                 {"certificate", swap(report, `exit status 1`, strings.Repeat("x", 512)), wire.ErrMessage},
		"reply with another's path":       {"reply", swap(read("reply-certificate.json"), `"haproxy"`, `"a/b"`), wire.ErrMessage},
		"command with an unknown verb":    {"command", swap(read("command-question.json"), "reprovision", "selfdestruct"), wire.ErrMessage},
		"command with a wildcard for id":  {"command", swap(read("command-question.json"), "h7Kd2Lw9QmS4vB1nX8cR5g", "*"), wire.ErrMessage},
		"command with half a proof":       {"command", swap(read("command-proof.json"), "YW4g", ""), wire.ErrMessage},
		"command with no nonce":           {"command", swap(read("command-proof.json"), `"nonce": "p0Yt6Vz3JfE2uN9aC7iO1w",`, ""), wire.ErrMessage},
		"answer that is two things":       {"command-answer", swap(read("command-answer-nonce.json"), `"nonce"`, `"accepted":{},"nonce"`), wire.ErrMessage},
		"answer that is nothing":          {"command-answer", `{"v":1,"sealed":false,"body":{"id":"x"}}`, wire.ErrMessage},
		"setting that appears twice":      {"reply", swap(read("reply-enrolled.json"), `"brokers"`, `"brokers":"nats://evil","brokers"`), wire.ErrMessage},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := decode(tt.name, []byte(tt.text))
			if !errors.Is(err, tt.want) {
				t.Errorf("error = %v, want %v", err, tt.want)
			}
			if !reflect.ValueOf(got).IsNil() {
				t.Errorf("a message beside the error: %v", got)
			}
		})
	}
}

// FuzzDecode checks that decoders do not panic, return no message beside an error, and accept only what survives
// our encoding.
func FuzzDecode(f *testing.F) {
	addGolden(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, name := range []string{"enroll", "renew", "certificate", "applied", "reply", "command", "command-answer"} {
			message, err := decode(name, b)
			if err != nil {
				if !reflect.ValueOf(message).IsNil() {
					t.Fatalf("%s: a message beside the error", name)
				}
				continue
			}
			encoded, err := wire.Encode(message)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			again, err := decode(name, encoded)
			if err != nil {
				t.Fatalf("%s: our own encoding is refused: %v", name, err)
			}
			twice, err := wire.Encode(again)
			if err != nil || !bytes.Equal(encoded, twice) {
				t.Fatalf("%s: round trip: %s became %s (%v)", name, encoded, twice, err)
			}
		}
	})
}
