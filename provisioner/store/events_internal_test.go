package store

import (
	"encoding/json"
	"testing"
	"time"

	"muster/provisioner"
)

// An event is written as encoding/json does, without it where that is possible.
func TestCloudEventAppends(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 123456700, time.UTC)
	usual := cloudEvent{
		SpecVersion: "1.0", ID: "id", Source: "io.muster.provisioner/1", Type: "io.muster.node.enrolled", Subject: "web1.example.net", Time: at,
		DataContentType: "application/json", Data: provisioner.Event{Node: "web1.example.net", Serial: "0a", Sealed: true},
	}
	for name, edit := range map[string]func(*cloudEvent) bool{ // says whether it is usual
		"usual":              func(*cloudEvent) bool { return true },
		"of nobody":          func(c *cloudEvent) bool { c.Subject, c.Data.Node = "", ""; return true },
		"empty":              func(c *cloudEvent) bool { c.Subject, c.Data = "", provisioner.Event{}; return true },
		"a whole second":     func(c *cloudEvent) bool { c.Time = time.Unix(0, 0).UTC(); return true },
		"a strange name":     func(c *cloudEvent) bool { c.Subject, c.Data.Node = "<\xff>", "<\xff>"; return false },
		"another subject":    func(c *cloudEvent) bool { c.Subject = "\n"; return false },
		"a strange cause":    func(c *cloudEvent) bool { c.Data.Cause = "\u2028"; return false },
		"a year of no RFC":   func(c *cloudEvent) bool { c.Time = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC); return false },
		"a year before them": func(c *cloudEvent) bool { c.Time = time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC); return false },
	} {
		c := usual
		want := edit(&c)
		got, ok := c.append(nil)
		if ok != want {
			t.Errorf("%s: usual is %v, want %v", name, ok, want)
		}
		if text, err := json.Marshal(c); ok && (err != nil || string(got) != string(text)) {
			t.Errorf("%s: appended as\n%s\nwant\n%s, %v", name, got, text, err)
		}
	}
}
