package broker_test

import (
	"fmt"
	"strings"
	"testing"

	"muster/provisioner/broker"
)

// FuzzRender checks that a client's name for itself, which the NATS server makes
// part of the format of its lines, neither reaches the log nor formats anything.
func FuzzRender(f *testing.F) {
	for _, s := range []string{"web1", "%[1]1000000d", `" - `, `\" - "`, "a\nb", "%!s(MISSING)", `eyJhbGciOiJub25lIn0`, "\\"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		for _, kind := range []string{"cid", "wid"} {
			// As server.Conn.String and (*client).Errorf write it.
			format := fmt.Sprintf("%s - %s:%d", "192.0.2.1:4711", kind, 7) + fmt.Sprintf(" - %q", name) + " - %s"
			text, address, client := broker.Render(format, "maximum payload exceeded")
			if !client || address != "192.0.2.1:4711" {
				t.Fatalf("a line about a client is taken for the server's own: %.200q", text)
			}
			if text != "maximum payload exceeded" {
				t.Fatalf("the name %q leaves %.200q in the line", name, text)
			}
			if strings.Contains(text, "MISSING") {
				t.Fatalf("the name %q formats %.200q", name, text)
			}
		}
	})
}
