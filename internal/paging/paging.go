// Package paging cuts sorted lists into pages, the same way for every list of operators.
package paging

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
)

// Limits of the rows on a page.
const (
	DefaultLimit = 100
	MaxLimit     = 1000
)

// ErrCursor means that a cursor is invalid or of a list with another order: begin again without a cursor.
var ErrCursor = errors.New("not a cursor of this list")

// An Order is the order of a list. Equal rows are sorted by name. With a - before it, the order is reversed, but rows
// without the value stay last.
type Order string

// The orders.
const (
	ByName      Order = "name"
	ByExpiry    Order = "expires" // soonest first
	ByChanged   Order = "changed" // newest first
	ByState     Order = "state"
	BySite      Order = "site"
	BySeen      Order = "seen"      // newest first
	ByConnected Order = "connected" // the connected first, newest change first
)

// Orders are all orders. A list may lack what some sort by: its rows are sorted by name then.
var Orders = []Order{ByName, ByExpiry, ByChanged, ByState, BySite, BySeen, ByConnected}

// A Query asks for a page.
type Query struct {
	Sort   Order  // "": [ByName]
	Limit  int    // 0: [DefaultLimit]
	Cursor string // of the page before; "": first page
	Number int    // of the page, from 1, instead of a cursor; 0 is 1
}

// Check reports every fault but a wrong cursor.
func (q *Query) Check() error {
	var errs []error
	if q.Sort != "" && !slices.Contains(Orders, Order(strings.TrimPrefix(string(q.Sort), "-"))) {
		errs = append(errs, fmt.Errorf("sort: %.40q, want one of %s, with - for the reverse", q.Sort, Orders))
	}
	if q.Limit < 0 || q.Limit > MaxLimit {
		errs = append(errs, fmt.Errorf("limit: %d, want 1 to %d", q.Limit, MaxLimit))
	}
	if q.Number < 0 || q.Number > maxNumber || q.Number > 1 && q.Cursor != "" {
		errs = append(errs, fmt.Errorf("page: %d, want 1 to %d, and no cursor", q.Number, maxNumber))
	}
	return errors.Join(errs...)
}

const maxNumber = 100_000 // a hundred million rows

// A Row has what a list is sorted by. Times are Unix times in ns; 0 and "" are no value.
type Row struct {
	Name                   string // unique
	State, Site, Connected string
	Expires, Changed, Seen int64
	Since                  int64 // of Connected
}

// A place is the sort key and name of the last row of a page. Changes before it do not affect the next page.
type place struct {
	None bool   `json:"z,omitempty"` // no value
	Text string `json:"t,omitempty"`
	Key  int64  `json:"k"`
	Name string `json:"n"`
	Sort Order  `json:"s"`
}

func (o Order) place(r Row) place {
	p := place{Name: r.Name, Sort: o}
	switch Order(strings.TrimPrefix(string(o), "-")) {
	case ByName:
		p.Text = r.Name
	case ByState:
		p.Text = r.State
	case BySite:
		p.Text = r.Site
	case ByConnected:
		p.Text, p.Key = r.Connected, -r.Since
	case ByExpiry:
		p.Key = r.Expires
	case ByChanged:
		p.Key = -r.Changed
	case BySeen:
		p.Key = -r.Seen
	}
	p.None = p.Text == "" && p.Key == 0
	return p
}

func (p place) compare(other place) int {
	if p.None != other.None {
		if p.None {
			return 1
		}
		return -1
	}
	c := cmp.Or(cmp.Compare(p.Text, other.Text), cmp.Compare(p.Key, other.Key))
	if strings.HasPrefix(string(p.Sort), "-") {
		c = -c
	}
	return cmp.Or(c, cmp.Compare(p.Name, other.Name))
}

// after returns the place of the query's cursor.
func (q *Query) after() (p place, err error) {
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
	var after place
	if q.Cursor != "" {
		if after, err = q.after(); err != nil {
			return nil, "", err
		}
	}
	at := func(t T) place { return q.Sort.place(row(t)) }
	compare := func(a, b T) int { return at(a).compare(at(b)) }
	before := max(q.Number-1, 0) * q.Limit // rows
	keep := before + q.Limit
	more := false
	cut := func() {
		slices.SortFunc(page, compare)
		if len(page) > keep {
			page, more = page[:keep], true
		}
	}
	for t := range all {
		if q.Cursor != "" && at(t).compare(after) <= 0 || more && compare(t, page[keep-1]) > 0 {
			continue
		}
		if page = append(page, t); len(page) == 2*keep {
			cut()
		}
	}
	if cut(); more {
		b, _ := json.Marshal(at(page[len(page)-1])) // cannot fail
		next = base64.RawURLEncoding.EncodeToString(b)
	}
	return page[min(before, len(page)):], next, nil
}
