package fleet

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"muster/internal/wire"
)

// ErrCursor means that a cursor is invalid or of a list with another order: begin again without a cursor.
var ErrCursor = errors.New("not a cursor of this list")

// A place is the sort key and name of the last node of a page. Changes before it do not affect the next page.
type place struct {
	Key  int64         `json:"k"`
	Name wire.Identity `json:"n"`
	Sort Order         `json:"s"`
}

func (q *Query) cursor(n *node) string {
	b, _ := json.Marshal(place{q.Sort.key(n), n.id, q.Sort}) // cannot fail
	return base64.RawURLEncoding.EncodeToString(b)
}

// after returns the place of the query's cursor, or without a cursor a place before all nodes.
func (q *Query) after() (*place, error) {
	if q.Cursor == "" {
		return &place{Key: math.MinInt64}, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(q.Cursor)
	p := new(place)
	if err == nil {
		err = json.Unmarshal(b, p)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %.80q", ErrCursor, q.Cursor)
	}
	if p.Sort != q.Sort {
		return nil, fmt.Errorf("%w: its list is sorted by %q", ErrCursor, p.Sort)
	}
	return p, nil
}

func (o Order) key(n *node) int64 {
	switch {
	case o == ByExpiry && n.expires == 0:
		return math.MaxInt64
	case o == ByExpiry:
		return n.expires
	case o == ByChanged:
		return -n.changed
	}
	return 0
}

// first selects the first limit nodes after a place.
type first struct {
	by    Order
	after *place
	limit int
	kept  []*node // sorted by cut
	more  bool    // some were dropped
}

func (f *first) offer(n *node) {
	if cmp.Or(cmp.Compare(f.by.key(n), f.after.Key), cmp.Compare(n.id, f.after.Name)) <= 0 {
		return
	}
	if f.more && f.compare(n, f.kept[f.limit-1]) > 0 {
		return
	}
	if f.kept = append(f.kept, n); len(f.kept) == 2*f.limit {
		f.cut()
	}
}

func (f *first) cut() {
	slices.SortFunc(f.kept, f.compare)
	if len(f.kept) > f.limit {
		f.kept, f.more = f.kept[:f.limit], true
	}
}

func (f *first) compare(a, b *node) int {
	return cmp.Or(cmp.Compare(f.by.key(a), f.by.key(b)), cmp.Compare(a.id, b.id))
}
