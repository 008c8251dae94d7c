package broker

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
)

// crowd is connections as servers list them.
type crowd struct {
	listed []place
	number uint64
}

func (c *crowd) join(n int, token, source string) {
	for range n {
		c.number++
		c.listed = append(c.listed, place{connection{server: "n1", number: c.number, start: time.Unix(int64(c.number), 0)}, token, source})
	}
}

// TestTheLastPlacesAreForWhoHasFew takes places, of 64, after a look.
func TestTheLastPlacesAreForWhoHasFew(t *testing.T) {
	t.Parallel()
	const thief, other = "192.0.2.1", "192.0.2.2"
	tests := map[string]struct {
		there       func(*crowd)
		token, host string
		tags        jwt.TagList // instead of 64 places
		want        bool
	}{
		"nobody is there":                           {func(*crowd) {}, "a", thief, nil, true},
		"less than three quarters are taken":        {func(c *crowd) { c.join(47, "a", thief) }, "a", thief, nil, true},
		"one token has three quarters":              {func(c *crowd) { c.join(48, "a", thief) }, "a", thief, nil, false},
		"the server says nothing of places":         {func(c *crowd) { c.join(64, "a", thief) }, "a", thief, jwt.TagList{"rack:4"}, true},
		"the server says nothing that is a number":  {func(c *crowd) { c.join(64, "a", thief) }, "a", thief, jwt.TagList{placesTag + "x"}, true},
		"another address":                           {func(c *crowd) { c.join(48, "a", thief) }, "a", other, nil, true},
		"another address that has its share":        {func(c *crowd) { c.join(48, "a", thief); c.join(4, "a", other) }, "a", other, nil, false},
		"another address, of the last eighth":       {func(c *crowd) { c.join(56, "a", thief) }, "a", other, nil, false},
		"another token, of the last eighth":         {func(c *crowd) { c.join(56, "a", thief) }, "b", thief, nil, true},
		"another token that has its share":          {func(c *crowd) { c.join(56, "a", thief); c.join(4, "b", thief) }, "b", thief, nil, false},
		"a third token then":                        {func(c *crowd) { c.join(56, "a", thief); c.join(4, "b", thief) }, "c", thief, nil, true},
		"provisioners that did not say the token":   {func(c *crowd) { c.join(48, "", thief) }, "b", thief, nil, false},
		"another address, and no token said":        {func(c *crowd) { c.join(48, "", thief) }, "b", other, nil, true},
		"many addresses of one network of the last": {func(c *crowd) { c.join(48, "a", sourceOf("2001:db8::1")) }, "a", "2001:db8::2", nil, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var c crowd
			tt.there(&c)
			s := newShares()
			s.begin()
			s.end(c.listed)
			if tt.tags == nil {
				tt.tags = jwt.TagList{taggedPlaces(64)}
			}
			if got := s.take(tt.tags, tt.token, tt.host); got != tt.want {
				t.Errorf("take = %v, want %v", got, tt.want)
			}
		})
	}
}

// TestWhoIsAdmittedCounts takes places without a look, and while one is under way.
func TestWhoIsAdmittedCounts(t *testing.T) {
	t.Parallel()
	s := newShares()
	tags := jwt.TagList{taggedPlaces(64)}
	fill := func(token, host string) (n int) {
		for s.take(tags, token, host) {
			n++
		}
		return n
	}
	if n := fill("a", "192.0.2.1"); n != 48 {
		t.Errorf("one token and address get %d of 64 places, want 48", n)
	}
	select {
	case <-s.due:
	default:
		t.Error("nobody is told to look")
	}
	s.begin()
	if n := fill("b", "192.0.2.1"); n != 4 {
		t.Errorf("another token gets %d places beside it, want 4", n)
	}
	s.end(nil) // all have gone but, for all that is known, those who came since it began
	if n := fill("a", "192.0.2.1"); n != 44 {
		t.Errorf("the token gets %d places once its own are known to be free and 4 are taken, want 44", n)
	}
	s.begin()
	s.end(nil)
	if n := fill("b", "192.0.2.1"); n != 48 {
		t.Errorf("another token gets %d places once all are free, want 48", n)
	}
}

// TestWhoIsAdmittedCountsOnce takes what is left for who has few, between two looks.
func TestWhoIsAdmittedCountsOnce(t *testing.T) {
	t.Parallel()
	var c crowd
	c.join(48, "a", "192.0.2.1")
	s := newShares()
	s.begin()
	s.end(c.listed)
	n := 0
	for s.take(jwt.TagList{taggedPlaces(64)}, "b", "192.0.2.2") {
		n++
	}
	if n != 4 {
		t.Errorf("another token gets %d places after a look, want 4", n)
	}
}

// TestWhoHasTooManyGoes has more connections than provisioners that know of each other's would
// have admitted.
func TestWhoHasTooManyGoes(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		there func(*crowd)
		want  map[string]int // how many go, by token and source
	}{
		"nobody is there":                            {func(*crowd) {}, nil},
		"three quarters":                             {func(c *crowd) { c.join(48, "a", "x") }, nil},
		"one address has all":                        {func(c *crowd) { c.join(64, "a", "x") }, map[string]int{"a x": 16}},
		"one token has all, from many addresses":     {func(c *crowd) { c.join(31, "a", "x"); c.join(30, "a", "y"); c.join(3, "a", "z") }, map[string]int{"a x": 5, "a y": 3}},
		"one address has nearly all beside others":   {func(c *crowd) { c.join(50, "a", "x"); c.join(4, "a", "y"); c.join(10, "b", "x") }, map[string]int{"a x": 16}},
		"a token keeps a half":                       {func(c *crowd) { c.join(34, "a", "x"); c.join(30, "b", "x") }, map[string]int{"a x": 2}},
		"two tokens have a half each":                {func(c *crowd) { c.join(32, "a", "x"); c.join(32, "b", "x") }, nil},
		"each has its own token":                     {func(c *crowd) { each(c, 64, func(i string) (string, string) { return i, "x" }) }, nil},
		"each has its own address":                   {func(c *crowd) { each(c, 64, func(i string) (string, string) { return "a", i }) }, map[string]int{"": 8}},
		"provisioners that did not say the token":    {func(c *crowd) { c.join(40, "", "x"); c.join(24, "", "y") }, map[string]int{" x": 16}},
		"one address, in all less than an eighth is": {func(c *crowd) { c.join(57, "a", "x") }, map[string]int{"a x": 9}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var c crowd
			tt.there(&c)
			s := newShares()
			s.take(jwt.TagList{taggedPlaces(64)}, "a", "x")
			s.begin()
			gone, oldest := map[string]int{}, map[string]uint64{}
			for _, p := range s.end(c.listed) {
				key := p.token + " " + p.source
				if _, ok := tt.want[""]; ok {
					key = ""
				}
				if gone[key]++; oldest[key] == 0 || p.number < oldest[key] {
					oldest[key] = p.number
				}
			}
			if fmt.Sprint(gone) != fmt.Sprint(tt.want) {
				t.Errorf("there go %v, want %v", gone, tt.want)
			}
			for _, p := range c.listed {
				key := p.token + " " + p.source
				if first, ok := oldest[key]; ok && p.number > first && gone[key] > 0 {
					if gone[key]--; gone[key] < 0 {
						t.Errorf("of %s, connection %d stays and an older one goes", key, p.number)
					}
				}
			}
			if len(gone) > 0 && !slices.Equal(numbers(s.end(c.listed)), numbers(s.end(slices.Concat(c.listed[1:], c.listed[:1])))) {
				t.Error("two that look choose others")
			}
		})
	}
}

func each(c *crowd, n int, of func(string) (token, source string)) {
	for i := range n {
		token, source := of(strconv.Itoa(i))
		c.join(1, token, source)
	}
}

func numbers(places []place) (all []uint64) {
	for _, p := range places {
		all = append(all, p.number)
	}
	slices.Sort(all)
	return all
}
