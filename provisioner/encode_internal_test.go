package provisioner

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
	"time"
)

// fullRecord returns a record like those that enrolling writes.
func fullRecord() *Record {
	now := time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)
	issued := &Issued{Serial: "0a", KeyHash: "k1", DER: bytes.Repeat([]byte{0x30, 0xfe}, 300), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour), Digest: "sha256:d", OfferedAt: now}
	return &Record{
		Schema: RecordSchema, Identity: "web1.example.net", State: StateProvisioned, Current: issued, Next: issued,
		Lineage: []string{"k0", "k1"}, Attempt: "a", Grant: "g", RevokedThrough: 7, OwnedSince: now,
		Token: "t", Signer: "s", Site: "ams", Source: "192.0.2.1:4222", Terms: json.RawMessage(`{"signer":"s","claims":{"sub":"\u003cx\u003e"}}`),
		Agent: "1.2", Boot: "b", Facts: Facts{{"datacenter", "ams1"}, {"environment", "production"}, {"os.name", "Debian"}, {"os.release.full", "13.1"}, {"role", "web"}}, Decision: Decided{Reason: ReasonReplay, Notes: []string{"n1", "n2"}, Policy: "p", Allowed: "x"},
		FirstEnrolledAt: now, ProvisionedAt: now, UpdatedAt: now,
	}
}

// sameAsJSON fails the test unless both ways to encode r give the same.
func sameAsJSON(t *testing.T, r *Record) {
	t.Helper()
	want, wantErr := json.Marshal(r)
	got, err := r.Encode()
	if !bytes.Equal(got, want) || (err == nil) != (wantErr == nil) {
		t.Errorf("encoded as\n%s, %v\nwant\n%s, %v", got, err, want, wantErr)
	}
}

// usual reports whether r is written without reflection.
func usual(r *Record) bool {
	var w recordWriter
	w.record(r)
	return !w.unusual
}

// What enrolling writes goes the fast way, with every member.
func TestRecordEncodes(t *testing.T) {
	t.Parallel()
	sameAsJSON(t, fullRecord())
	if !usual(fullRecord()) {
		t.Error("a record of enrolling is encoded by reflection")
	}
	sameAsJSON(t, &Record{})
}

// Each member, also one that is added some day, is written as encoding/json
// does: alone, and with what has to be escaped in it.
func TestRecordEncodesEachMember(t *testing.T) {
	t.Parallel()
	var members func(at func(*Record) reflect.Value)
	members = func(at func(*Record) reflect.Value) {
		for _, text := range []string{"plain", `"`, `\`, "<", ">", "&", "\n", "\x7f", "é", "\u2028", "\xff"} {
			for _, r := range []*Record{fullRecord(), {}} {
				switch v := at(r); v.Kind() { //nolint:exhaustive // those that occur
				case reflect.String:
					v.SetString(text)
				case reflect.Int:
					v.SetInt(int64(-len(text)))
				case reflect.Uint64:
					v.SetUint(1 << 63)
				case reflect.Bool:
					v.SetBool(true)
				case reflect.Slice:
					v.Set(reflect.MakeSlice(v.Type(), 1, 1))
					switch e := v.Index(0); e.Kind() { //nolint:exhaustive // the same
					case reflect.String:
						e.SetString(text)
					case reflect.Uint8:
						e.SetUint('7')
					}
				case reflect.Pointer:
					v.Set(reflect.New(v.Type().Elem()))
				}
				sameAsJSON(t, r)
			}
		}
		at0 := at(&Record{})
		if at0.Kind() != reflect.Struct || at0.Type() == reflect.TypeFor[time.Time]() {
			return
		}
		for i := range at0.NumField() {
			members(func(r *Record) reflect.Value { return at(r).Field(i) })
		}
	}
	members(func(r *Record) reflect.Value { return reflect.ValueOf(r).Elem() })
	members(func(r *Record) reflect.Value {
		if r.Next == nil {
			r.Next = &Issued{}
		}
		return reflect.ValueOf(r.Next).Elem()
	})
}

// Times and terms that need more than copying are written as encoding/json does.
func TestRecordEncodesOddTimesAndTerms(t *testing.T) {
	t.Parallel()
	for _, at := range []time.Time{
		{}, time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), time.Unix(0, 0).UTC(),
		time.Date(2026, 1, 1, 0, 0, 0, 0, time.FixedZone("", 3600)), time.Date(2026, 1, 1, 0, 0, 0, 0, time.FixedZone("", 25*3600)), time.Now(),
	} {
		r := fullRecord()
		r.UpdatedAt, r.ProvisionedAt, r.Next.OfferedAt = at, at, at
		sameAsJSON(t, r)
	}
	for _, terms := range []string{"", " ", "{}", "{ }", `{"a":"<"}`, `"\u2028"`, "\"\u2028\"", "{", "null", `{"a":1}}`, "{}"} {
		r := fullRecord()
		r.Terms = json.RawMessage(terms)
		sameAsJSON(t, r)
	}
}

// Each member of an event, also one that is added some day, is written as
// encoding/json does, alone and among others, or is left to it.
func TestEventAppendsEachMember(t *testing.T) {
	t.Parallel()
	full := Event{}
	same := func(e *Event, usual bool) {
		t.Helper()
		want, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		got, ok := e.AppendJSON([]byte("before"))
		if ok != usual || ok && string(got) != "before"+string(want) {
			t.Errorf("appended as\n%s, %v\nwant\n%s, %v", got, ok, want, usual)
		}
	}
	same(&full, true)
	for i := range reflect.TypeFor[Event]().NumField() {
		for _, text := range []string{"plain", `"`, "<", "\n", "é", "\xff"} {
			var alone Event
			for _, e := range []*Event{&alone, &full} {
				switch v := reflect.ValueOf(e).Elem().Field(i); v.Kind() { //nolint:exhaustive // those that occur
				case reflect.String:
					v.SetString(text)
				case reflect.Int64:
					v.SetInt(-1 << 40)
				case reflect.Bool:
					v.SetBool(true)
				}
				f := reflect.TypeFor[Event]().Field(i)
				same(e, text == "plain" || f.Type.Kind() != reflect.String || f.Tag.Get("json") == "-")
			}
		}
		if v := reflect.ValueOf(&full).Elem().Field(i); v.Kind() == reflect.String {
			v.SetString("plain")
		}
	}
}

func BenchmarkRecordEncode(b *testing.B) {
	r := fullRecord()
	none := fullRecord()
	none.Facts = nil
	for name, encode := range map[string]func() ([]byte, error){"fast": r.Encode, "no facts": none.Encode, "reflection": func() ([]byte, error) { return json.Marshal(r) }} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := encode(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
