package fleet

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
)

// ErrCursor means that a cursor is not one of ours, or of another list: begin
// again without one.
var ErrCursor = errors.New("not a cursor of this list")

// A place is where a list goes on: behind the node with this key and name. It
// names no position, so nodes that come and go before it change nothing.
type place struct {
	Key  int64  `json:"k"`
	Name string `json:"n"`
	List string `json:"l"` // what the list is of
}

// before reports whether the place is before that of a node.
func (p *place) before(key int64, name []byte) bool {
	return p.Key < key || p.Key == key && p.Name < string(name)
}

// list tells lists apart: by their filter and order.
func (q *Query) list() string {
	b, _ := json.Marshal(struct { // cannot fail: texts, and times that Check has seen
		Filter Filter
		Sort   Order
	}{q.Filter, q.Sort})
	sum := sha256.Sum256(b)
	return base64.RawURLEncoding.EncodeToString(sum[:9])
}

// cursor returns the cursor of what comes after the node.
func (q *Query) cursor(key int64, name string) string {
	b, _ := json.Marshal(place{key, name, q.list()}) // cannot fail
	return base64.RawURLEncoding.EncodeToString(b)
}

// after returns the place of the query's cursor, nil if it has none.
func (q *Query) after() (*place, error) {
	if q.Cursor == "" {
		return nil, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(q.Cursor)
	p := new(place)
	if err == nil {
		err = json.Unmarshal(b, p)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %.80q", ErrCursor, q.Cursor)
	}
	if p.List != q.list() {
		return nil, fmt.Errorf("%w: filter or order have changed since the page before", ErrCursor)
	}
	return p, nil
}

// first keeps the first entries of all that it is offered, in an order.
type first struct {
	x     *Index
	key   func(*entry) int64
	limit int
	kept  []kept // in order
	more  bool   // there were others
}

type kept struct {
	key int64
	e   *entry
}

func newFirst(x *Index, by Order, limit int) *first {
	f := &first{x: x, limit: limit}
	switch by {
	case ByExpiry:
		f.key = func(e *entry) int64 {
			if e.expires == 0 {
				return math.MaxInt64
			}
			return e.expires
		}
	case ByChanged:
		f.key = func(e *entry) int64 { return -e.updated }
	default:
		f.key = func(*entry) int64 { return 0 }
	}
	return f
}

// offer keeps an entry that is among the first so far.
func (f *first) offer(key int64, e *entry) {
	one := kept{key, e}
	full := len(f.kept) == f.limit
	f.more = f.more || full
	if full && f.compare(one, f.kept[f.limit-1]) > 0 {
		return
	}
	if full {
		f.kept = f.kept[:f.limit-1]
	}
	i, _ := slices.BinarySearchFunc(f.kept, one, f.compare)
	f.kept = slices.Insert(f.kept, i, one)
}

// compare says which of two comes first.
func (f *first) compare(a, b kept) int {
	if c := cmp.Compare(a.key, b.key); c != 0 {
		return c
	}
	return bytes.Compare(f.x.name(a.e), f.x.name(b.e))
}
