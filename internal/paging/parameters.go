package paging

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// Parameters reads the query of a list, and collects every mistake. An empty parameter is an absent one.
type Parameters struct {
	url.Values

	Now  time.Time
	errs []error
}

// Texts returns the values of a parameter that may be repeated.
func (p *Parameters) Texts(name string) []string {
	return slices.DeleteFunc(slices.Clone(p.Values[name]), func(s string) bool { return s == "" })
}

// True reads a parameter that is true or false.
func (p *Parameters) True(name string) bool {
	s := p.Get(name)
	if s != "" && s != "true" && s != "false" {
		p.Wrong(name, fmt.Errorf("%.40q, want true or false", s))
	}
	return s == "true"
}

// Time reads a time with a parser of package span.
func (p *Parameters) Time(name string, parse func(string, time.Time) (time.Time, error)) (at time.Time) {
	if s := p.Get(name); s != "" {
		var err error
		at, err = parse(s, p.Now)
		p.Wrong(name, err)
	}
	return at
}

// Page reads sort, limit, cursor and page.
func (p *Parameters) Page() Query {
	return Query{
		Sort:   Order(p.Get("sort")),
		Cursor: p.Get("cursor"),
		Limit:  p.number("limit", MaxLimit),
		Number: p.number("page", maxNumber),
	}
}

func (p *Parameters) number(name string, limit int) (n int) {
	if s := p.Get(name); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil || n < 1 {
			p.Wrong(name, fmt.Errorf("%.40q, want 1 to %d", s, limit))
		}
	}
	return n
}

// Wrong notes a mistake in a parameter. A nil error is none.
func (p *Parameters) Wrong(name string, err error) {
	if err != nil {
		p.errs = append(p.errs, fmt.Errorf("%s: %w", name, err))
	}
}

// Err returns the mistakes and other, one a line, or nil.
func (p *Parameters) Err(other error) error { return errors.Join(append(p.errs, other)...) }
