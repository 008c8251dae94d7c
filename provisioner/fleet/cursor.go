package fleet

import (
	"bytes"
	"container/heap"
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
	if q.cursor(p.Key, p.Name) != q.Cursor { // there is one spelling
		return nil, fmt.Errorf("%w: %.80q", ErrCursor, q.Cursor)
	}
	return p, nil
}

// first keeps the first entries of all that it is offered, in an order. It is a
// heap whose top is the last of them.
type first struct {
	x     *Index
	key   func(*entry) int64
	limit int
	kept  []kept
	more  bool // there were others
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

// offer takes an entry that is among the first so far.
func (f *first) offer(key int64, e *entry) {
	if len(f.kept) < f.limit {
		heap.Push(f, kept{key, e})
		return
	}
	f.more = true
	if f.compare(kept{key, e}, f.kept[0]) < 0 {
		f.kept[0] = kept{key, e}
		heap.Fix(f, 0)
	}
}

// compare says which of two comes first.
func (f *first) compare(a, b kept) int {
	if a.key != b.key {
		if a.key < b.key {
			return -1
		}
		return 1
	}
	return bytes.Compare(f.x.name(a.e), f.x.name(b.e))
}

// sorted returns what was kept, the first first.
func (f *first) sorted() []*entry {
	slices.SortFunc(f.kept, f.compare)
	entries := make([]*entry, len(f.kept))
	for i, k := range f.kept {
		entries[i] = k.e
	}
	return entries
}

// Len, Less, Swap, Push and Pop implement [heap.Interface].
func (f *first) Len() int           { return len(f.kept) }
func (f *first) Less(i, j int) bool { return f.compare(f.kept[i], f.kept[j]) > 0 }
func (f *first) Swap(i, j int)      { f.kept[i], f.kept[j] = f.kept[j], f.kept[i] }
func (f *first) Push(v any)         { f.kept = append(f.kept, v.(kept)) }
func (f *first) Pop() any           { panic("nothing is taken off") }
