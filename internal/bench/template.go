package bench

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"muster/internal/wire"
)

// A template is an enroll request with places for what differs from node to
// node. [wire.Encode] takes 20 µs for a request, most of it for the facts; this
// takes one, for the same bytes, so that the driver leaves the cores to what is
// measured.
type template struct {
	parts []string // the text between the places
	holes []hole   // what goes between parts[i] and parts[i+1]
}

// A hole is a place in a template.
type hole int

const (
	holeID hole = iota
	holeIdentity
	holeCSR
	holeBoot
)

// marks stand in for the holes while the template is made. They are JSON text
// that needs no escape, and nothing in a request looks like them.
var marks = []string{"@request-id@", "@identity@", base64.StdEncoding.EncodeToString([]byte("@certificate-request@")), "@boot@"}

// newTemplate makes the template of requests with this token and these facts,
// in which the identity's mark stands for the identity.
func newTemplate(token string, facts json.RawMessage) (*template, error) {
	b, err := wire.Encode(&wire.EnrollRequest{
		ID: marks[holeID], Identity: marks[holeIdentity], Token: wire.Secret(token), CSR: []byte("@certificate-request@"), Facts: facts,
		Agent: "bench", Boot: marks[holeBoot],
	})
	if err != nil {
		return nil, err
	}
	t := &template{}
	for text := string(b); ; {
		at, which := len(text), hole(-1)
		for h, mark := range marks {
			if i := strings.Index(text, mark); i >= 0 && i < at {
				at, which = i, hole(h)
			}
		}
		t.parts = append(t.parts, text[:at])
		if which < 0 {
			return t, nil
		}
		t.holes = append(t.holes, which)
		text = text[at+len(marks[which]):]
	}
}

// request appends the request of a node under an id.
func (t *template) request(b []byte, n *node, id string) []byte {
	for i, part := range t.parts {
		b = append(b, part...)
		if i == len(t.holes) {
			break
		}
		switch t.holes[i] {
		case holeID:
			b = append(b, id...)
		case holeIdentity:
			b = append(b, n.identity...)
		case holeCSR:
			b = base64.StdEncoding.AppendEncode(b, n.csr)
		case holeBoot:
			b = append(b, n.boot...)
		}
	}
	return b
}

// minFacts is the least that makeFacts makes: what the built-in policy of the
// bench looks at.
const minFacts = 512

// makeFacts returns facts of about so many bytes, as a machine of a fleet would
// send them, with the identity's mark for its name.
func makeFacts(size int) json.RawMessage {
	var b strings.Builder
	fmt.Fprintf(&b, `{"fqdn":%q,"datacenter":"ams1","role":"web","environment":"production","os":{"name":"debian","release":"13.1","kernel":"6.12.48"},`+
		`"hardware":{"vendor":"Dell Inc.","model":"PowerEdge R660","serial":"7XK2Q14"},"memory_mb":262144,"cpus":64,"virtual":false,"quarantine":false,`+
		`"network":{"primary":"eno1","interfaces":{"eno1":{"mac":"3c:ec:ef:12:34:56","mtu":1500,"speed":25000}}},"packages":{`, marks[holeIdentity])
	const end = `"end":"1.0"}}`
	for i := 0; b.Len()+len(end)+40 <= size; i++ {
		fmt.Fprintf(&b, `"library-%04d":"2.%d.%d-1+deb13",`, i, i%17, i%5)
	}
	b.WriteString(end)
	return json.RawMessage(b.String())
}
