// Package paging cuts sorted lists into pages, the same way for every list of operators.
package paging

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
)

// Limits of the rows on a page.
const (
	DefaultLimit = 100
	MaxLimit     = 1000
)

// ErrCursor means that a cursor is invalid or of a list with another order: begin again without a cursor.
var ErrCursor = errors.New("not a cursor of this list")

// An Order is the order of a list. Equal rows are sorted by name.
type Order string

// The orders.
const (
	ByName    Order = "name"
	ByExpiry  Order = "expires" // soonest first; rows without a certificate last
	ByChanged Order = "changed" // newest first
)

// A Query asks for a page.
type Query struct {
	Sort   Order  // "": [ByName]
	Limit  int    // 0: [DefaultLimit]
	Cursor string // of the page before; "": first page
}

// Check reports every fault but a wrong cursor.
func (q *Query) Check() error {
	var errs []error
	if q.Sort != "" && q.Sort != ByName && q.Sort != ByExpiry && q.Sort != ByChanged {
		errs = append(errs, fmt.Errorf("sort: %.40q, want %s, %s or %s", q.Sort, ByName, ByExpiry, ByChanged))
	}
	if q.Limit < 0 || q.Limit > MaxLimit {
		errs = append(errs, fmt.Errorf("limit: %d, want 1 to %d", q.Limit, MaxLimit))
	}
	return errors.Join(errs...)
}

// A Row has what a list is sorted by. Times are Unix times in ns, 0 for none.
type Row struct {
	Name             string // unique
	Expires, Changed int64
}

func (o Order) key(r Row) int64 {
	switch {
	case o == ByExpiry && r.Expires == 0:
		return math.MaxInt64
	case o == ByExpiry:
		return r.Expires
	case o == ByChanged:
		return -r.Changed
	}
	return 0
}

// A place is the sort key and name of the last row of a page. Changes before it do not affect the next page.
type place struct {
	Key  int64  `json:"k"`
	Name string `json:"n"`
	Sort Order  `json:"s"`
}

func (p place) compare(other place) int {
	return cmp.Or(cmp.Compare(p.Key, other.Key), cmp.Compare(p.Name, other.Name))
}

// after returns the place of the query's cursor, or without a cursor a place before all rows.
func (q *Query) after() (p place, err error) {
	if q.Cursor == "" {
		return place{Key: math.MinInt64}, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(q.Cursor)
	if err == nil {
		err = json.Unmarshal(b, &p)
	}
	if err != nil {
		return p, fmt.Errorf("%w: %.80q", ErrCursor, q.Cursor)
	}
	if p.Sort != q.Sort {
		return p, fmt.Errorf("%w: its list is sorted by %q", ErrCursor, p.Sort)
	}
	return p, nil
}

// Cut returns a page of all, and the cursor of the next one: empty for the last page. The error is [ErrCursor], and all
// is not read then.
func Cut[T any](q Query, all iter.Seq[T], row func(T) Row) (page []T, next string, err error) {
	q.Sort, q.Limit = cmp.Or(q.Sort, ByName), cmp.Or(q.Limit, DefaultLimit)
	after, err := q.after()
	if err != nil {
		return nil, "", err
	}
	at := func(t T) place {
		r := row(t)
		return place{q.Sort.key(r), r.Name, q.Sort}
	}
	compare := func(a, b T) int { return at(a).compare(at(b)) }
	more := false
	cut := func() {
		slices.SortFunc(page, compare)
		if len(page) > q.Limit {
			page, more = page[:q.Limit], true
		}
	}
	for t := range all {
		if at(t).compare(after) <= 0 || more && compare(t, page[q.Limit-1]) > 0 {
			continue
		}
		if page = append(page, t); len(page) == 2*q.Limit {
			cut()
		}
	}
	if cut(); more {
		b, _ := json.Marshal(at(page[len(page)-1])) // cannot fail
		next = base64.RawURLEncoding.EncodeToString(b)
	}
	return page, next, nil
}
