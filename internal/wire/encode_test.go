package wire_test

import (
	"bytes"
	"encoding/json"
	"math"
	"net/netip"
	"testing"
	"time"

	"muster/internal/wire"
)

// everyKind has a field of each kind in messages, records and events.
type everyKind struct {
	Text     string `json:"text"`
	Named    wire.Secret
	Bool     bool              `json:"bool"`
	Int      int8              `json:"int"`
	Uint     uint64            `json:"uint,omitempty"`
	Float    float64           `json:"float"`
	Span     time.Duration     `json:"span"`
	Bytes    []byte            `json:"bytes"`
	Raw      json.RawMessage   `json:"raw,omitempty"`
	Texts    []string          `json:"texts"`
	Omitted  []string          `json:"omitted,omitempty"`
	Map      map[string]string `json:"map"`
	Pointer  *everyKind        `json:"pointer,omitempty"`
	Nil      *everyKind        `json:"nil"`
	Any      any               `json:"any"`
	At       time.Time         `json:"at"`
	Zero     time.Time         `json:"zero,omitzero"`
	Address  netip.Addr        `json:"address"`
	Kept     string            `json:"-"`
	Triple   [3]int            `json:"triple"`
	Envelope wire.Envelope     `json:"envelope"`
	wire.Files
}

func TestEncodeJSONIsTheStandardForm(t *testing.T) {
	t.Parallel()
	full := everyKind{
		Text:     "a \"quote\", \\, <html>&, é, \U0001f600, \x00\x1f\b\f\n\r\t\x7f and \xff\xc3",
		Named:    "text",
		Bool:     true,
		Int:      math.MinInt8,
		Uint:     math.MaxUint64,
		Float:    -1.5e-9,
		Span:     time.Second,
		Bytes:    []byte{0, 1, 254, 255},
		Raw:      json.RawMessage(" { \"a b\" : [ 1 , \"x \\\" y\\\\\" , \n{ } ] } "),
		Texts:    []string{"", "b"},
		Map:      map[string]string{"z": "1", "a\n": "2", "": "3"},
		Any:      map[string]any{"n": 1, "deep": []any{nil, "x", true}},
		At:       time.Date(2026, 2, 3, 4, 5, 6, 789, time.FixedZone("", 3600)),
		Address:  netip.MustParseAddr("2001:db8::1"),
		Kept:     "out",
		Triple:   [3]int{1, 2, 3},
		Envelope: wire.Envelope{Version: 1, Body: json.RawMessage(`1`)},
		Files:    wire.Files{Configuration: map[string]string{"k": "v"}},
	}
	nested := full
	nested.Pointer = &everyKind{Texts: []string{}, Map: map[string]string{}, Bytes: []byte{}}
	for name, v := range map[string]any{
		"full": full, "pointer": &full, "nested": nested, "zero": everyKind{}, "empty": struct{}{}, "nil": nil,
		"text": "x", "list": []everyKind{{}, full}, "map of lists": map[string][]string{"b": nil, "a": {"x"}},
		"reply": wire.Reply{ID: "x", Enrolled: &wire.Enrolled{Serial: "1"}},
	} {
		var want bytes.Buffer
		e := json.NewEncoder(&want)
		e.SetEscapeHTML(false)
		if err := e.Encode(v); err != nil {
			t.Fatal(err)
		}
		got, err := wire.EncodeJSON(v)
		if err != nil || string(got) != string(bytes.TrimSpace(want.Bytes())) {
			t.Errorf("%s: %v\n got %s\nwant %s", name, err, got, want.Bytes())
		}
	}
	for name, v := range map[string]any{"year 10000": time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC),
		"channel": make(chan int)} {
		if b, err := wire.EncodeJSON(v); err == nil {
			t.Errorf("%s: %s, want an error", name, b)
		}
	}
}
