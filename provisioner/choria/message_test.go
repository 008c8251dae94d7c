package choria_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"muster/provisioner/choria"
)

var versions = map[string]choria.Version{"protocol 1": choria.V1, "protocol 2": choria.V2}

func TestRequestIsReadAsWritten(t *testing.T) {
	t.Parallel()
	want := choria.Request{
		ID:         strings.Repeat("0a", 16),
		Sender:     "muster",
		Caller:     "choria=muster",
		Collective: "provisioning",
		Agent:      "choria_provision",
		Body:       []byte(`{"agent":"choria_provision","action":"gencsr","data":{"token":"s<&\"é"}}`),
		ReplyTo:    "provisioning.reply.web1_example_net.x.y",
		Time:       time.Now(),
	}
	for name, v := range versions {
		b, err := want.Encode(v)
		if err != nil {
			t.Fatal(err)
		}
		got, of, err := choria.DecodeRequest(b)
		if err != nil || of != v {
			t.Fatalf("%s: version %d, %v", name, of, err)
		}
		if string(got.Body) != string(want.Body) || got.ReplyTo != want.ReplyTo || got.ID != want.ID ||
			got.Agent != want.Agent || got.Caller != want.Caller || got.Collective != want.Collective || got.Sender != want.Sender {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

func TestReplyIsReadAsWritten(t *testing.T) {
	t.Parallel()
	want := choria.Reply{
		Request: strings.Repeat("0a", 16),
		Sender:  "web1.example.net",
		Agent:   "rpcutil",
		Body:    []byte(`{"statuscode":0,"data":{"facts":{"a":"<b>"}}}`),
		Time:    time.Now(),
	}
	for name, v := range versions {
		b, err := want.Encode(v)
		if err != nil {
			t.Fatal(err)
		}
		got, err := choria.DecodeReply(b)
		if err != nil || string(got.Body) != string(want.Body) || got.Request != want.Request || got.Sender != want.Sender || got.Agent != want.Agent {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, want)
		}
	}
}

// The rules of a server for requests that it does not drop unanswered.
func TestServersAcceptTheForm(t *testing.T) {
	t.Parallel()
	r := choria.Request{ID: strings.Repeat("0a", 16), Sender: "muster", Caller: "choria=muster", Collective: "provisioning",
		Agent: "rpcutil", Body: []byte("{}"), ReplyTo: "x", Time: time.Unix(1_790_000_000, 0)}
	b, err := r.Encode(choria.V1)
	if err != nil {
		t.Fatal(err)
	}
	var outer struct{ Data []byte }
	var secure struct{ Message, Signature, Pubcert string }
	var inner struct {
		Envelope struct {
			TTL, Time int64
			Filter    map[string][]string
		}
	}
	if err := errors.Join(json.Unmarshal(b, &outer), json.Unmarshal(outer.Data, &secure), json.Unmarshal([]byte(secure.Message), &inner)); err != nil {
		t.Fatal(err)
	}
	e := inner.Envelope
	if secure.Signature == "" || secure.Pubcert == "" || e.TTL < 30 || e.Time != 1_790_000_000 {
		t.Errorf("signature %q, pubcert %q, ttl %d, time %d", secure.Signature, secure.Pubcert, e.TTL, e.Time)
	}
	for _, member := range []string{"fact", "cf_class", "identity", "compound", "agent"} {
		if e.Filter[member] == nil {
			t.Errorf("the filter has no %s", member)
		}
	}
}

func TestGarbageIsNoReply(t *testing.T) {
	t.Parallel()
	good, err := (&choria.Reply{Request: "r", Sender: "s", Body: []byte("{}")}).Encode(choria.V1)
	if err != nil {
		t.Fatal(err)
	}
	inner := func(text string) string {
		return `{"protocol":"choria:transport:1","data":"` + base64.StdEncoding.EncodeToString([]byte(text)) + `"}`
	}
	for name, text := range map[string]string{
		"nothing":                 "",
		"no object":               "[]",
		"another protocol":        strings.Replace(string(good), "transport:1", "transport:3", 1),
		"no secure reply":         inner("x"),
		"a number for a message":  inner(`{"protocol":"choria:secure:reply:1","message":1}`),
		"a wrong checksum":        inner(`{"protocol":"choria:secure:reply:1","message":"{}","hash":"AAAA"}`),
		"a request in its place":  inner(`{"protocol":"choria:secure:request:1","message":"{}"}`),
		"deep nesting":            strings.Repeat("[", 20_000),
		"base64 that breaks":      `{"protocol":"choria:transport:1","data":"%%%"}`,
		"protocol 2 with a text":  strings.Replace(string(good), "choria:transport:1", "io.choria.protocol.v2.transport", 1),
		"a request id of objects": inner(`{"protocol":"choria:secure:reply:1","message":"{\"envelope\":[]}"}`),
	} {
		if r, err := choria.DecodeReply([]byte(text)); !errors.Is(err, choria.ErrMessage) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}
