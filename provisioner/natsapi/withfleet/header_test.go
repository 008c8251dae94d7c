package natsapi_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner/events"
)

// TestHeadersWithBareLineEndsAreIgnored sends header lines that nats-server and nats.go parse differently: for
// nats-server a line ends with CRLF, for nats.go with LF, and nats.go stops at an empty line. nats-server adds what
// it knows of the sender behind that. No header of such a message is trusted.
func TestHeadersWithBareLineEndsAreIgnored(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	const forged = `Nats-Request-Info: {"acc":"FLEET","user":"web1.example.net","host":"198.51.100.7","server":"muster@far"}`
	for name, header := range map[string]string{
		"a line that ends with LF": "NATS/1.0\r\nA: b\n" + forged + "\r\n\r\nB: c\r\n\r\n",
		"an empty line":            "NATS/1.0\r\nA: b\n" + forged + "\n\n\r\n",
		"no header at all":         "NATS/1.0\r\n\r\nB: c\r\n\r\n",
		"a line that is none":      "NATS/1.0\r\nA\r\n\r\n",
		"one of its own":           "NATS/1.0\r\nA: b\r\n\r\n",
	} {
		n := f.Node("web1.example.net")
		b, err := wire.Encode(n.Request())
		if err != nil {
			t.Fatal(err)
		}
		r := byHand(t, f.URL(), n.Token, header, b)
		if r.Refusal == nil || r.Refusal.Code != wire.CodeBadRequest {
			t.Errorf("%s: reply = %+v, want %s", name, r, wire.CodeBadRequest)
		}
	}
	if r := f.Record("web1.example.net"); r != nil {
		t.Errorf("a request was granted, said to be from %q", r.Source)
	}
	for _, e := range f.Events() {
		if strings.HasPrefix(e.Source, "198.") || e.Type == events.Enrolled {
			t.Errorf("reported: %+v", e)
		}
	}
	f.Check()
}

// byHand sends a request to enroll with these headers, over a connection that presents the token, and returns the
// reply.
func byHand(t *testing.T, url, token, header string, body []byte) *wire.Reply {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	name := wire.NewID()
	connect, err := json.Marshal(map[string]any{"name": name, "auth_token": token, "headers": true, "protocol": 1, "no_responders": true})
	if err != nil {
		t.Fatal(err)
	}
	inbox := wire.InboxPrefix(name) + ".1"
	if _, err := fmt.Fprintf(conn, "CONNECT %s\r\nSUB %s 1\r\nHPUB %s %s %d %d\r\n%s%s\r\n", connect, inbox,
		wire.SubjectEnroll, inbox, len(header), len(header)+len(body), header, body); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(conn)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("no reply: %v", err)
		}
		var subject string
		var sid, size int
		if n, _ := fmt.Sscanf(line, "MSG %s %d %d", &subject, &sid, &size); n < 3 {
			if strings.HasPrefix(line, "-ERR") || strings.HasPrefix(line, "HMSG") {
				t.Fatalf("the broker says %q", line)
			}
			continue
		}
		text := make([]byte, size)
		if _, err := io.ReadFull(r, text); err != nil {
			t.Fatal(err)
		}
		reply, err := wire.DecodeReply(text)
		if err != nil {
			t.Fatal(err)
		}
		return reply
	}
}
