package fleet

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// FuzzCursor checks that a cursor is taken only as it was made, and for the list that it was
// made for.
func FuzzCursor(f *testing.F) {
	made := (&Query{Sort: ByName}).cursor(7, "web1.example.net")
	f.Add(made, "", "", int64(7), "web1.example.net")
	f.Add(made, "ams1", "2027-01-31T12:00:00Z", int64(-1), "")
	f.Add("bnVsbA", "", "2027-01-31T12:00:00+24:00", int64(0), "\xff")
	f.Add("e30\n", "", "9999-12-31T23:59:59-23:00", int64(0), "a")
	f.Fuzz(func(t *testing.T, cursor, prefix, before string, key int64, name string) {
		q := &Query{Filter: Filter{Prefix: prefix}, Sort: ByName, Cursor: cursor}
		if at, err := time.Parse(time.RFC3339, before); err == nil {
			q.ExpiresBefore = at
		}
		if q.Check() != nil {
			return
		}
		switch p, err := q.after(); {
		case err != nil:
			if p != nil || !errors.Is(err, ErrCursor) || len(err.Error()) > 1000 || strings.Contains(err.Error(), "\n") {
				t.Fatalf("after = %v, %v", p, err)
			}
		case p == nil:
			if cursor != "" {
				t.Fatalf("the cursor %q is none", cursor)
			}
		case q.cursor(p.Key, p.Name) != cursor:
			t.Fatalf("%q is taken for %q", cursor, q.cursor(p.Key, p.Name))
		}
		other := &Query{Filter: Filter{Prefix: prefix + "x", ExpiresBefore: q.ExpiresBefore}, Sort: ByName, Cursor: q.cursor(key, strings.ToValidUTF8(name, ""))}
		if _, err := other.after(); !errors.Is(err, ErrCursor) {
			t.Fatalf("a cursor of the list of names that begin with %q is taken for %q: %v", prefix, other.Prefix, err)
		}
		q.Cursor = other.Cursor
		if p, err := q.after(); err != nil || p == nil || p.Key != key {
			t.Fatalf("our own cursor is %v, %v", p, err)
		}
	})
}
