package console

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"muster/internal/wire"
	"muster/provisioner/events"
)

const (
	maxShown = 200 // events on a page

	// searchTime bounds reading the log for a page: some 100,000 events.
	searchTime = 4 * time.Second
)

type eventsPage struct {
	Type, Node, Code, Since string
	Types                   []choice
	Codes                   []wire.Code
	Sinces                  []choice
	Events                  []*loggedEvent // newest first
	More                    bool           // there are older ones
	Partial                 bool           // searchTime ended first
	Live                    bool
	Broken                  error
	Problem                 string
}

// sinces are the ranges offered. The empty one shows the events in memory, live.
var sinces = []choice{
	{"", "the newest, live"},
	{"1h", "the last hour"},
	{"24h", "the last day"},
	{"168h", "the last week"},
	{"720h", "the last 30 days"},
}

// eventChoices are groups of types, then each type.
func eventChoices() []choice {
	all := []choice{
		{"", "all"},
		{"io.muster.node.", "all of nodes"},
		{"io.muster.alarm.", "all alarms"},
		{"io.muster.operator.", "all of operators"},
		{"io.muster.token.", "all of tokens"},
	}
	for _, m := range events.Types {
		all = append(all, choice{string(m.Type), strings.TrimPrefix(string(m.Type), "io.muster.")})
	}
	return all
}

func (c eventPages) events(v *visit) error {
	given := v.r.URL.Query()
	p := &eventsPage{
		Type:   given.Get("type"),
		Node:   wire.FoldName(given.Get("node")),
		Code:   given.Get("code"),
		Since:  given.Get("since"),
		Types:  eventChoices(),
		Codes:  events.Codes(),
		Sinces: sinces,
	}
	q := events.Query{Type: p.Type, Code: wire.Code(p.Code), Once: true}
	var err error
	if p.Node != "" {
		q.Node, err = wire.ParseIdentity(p.Node)
	}
	if err == nil && p.Since != "" {
		var age time.Duration
		if age, err = time.ParseDuration(p.Since); err != nil || !offered(sinces, p.Since) {
			err = fmt.Errorf("since %.40q: want one of the list", p.Since)
		}
		q.Since = c.cfg.Now().Add(-age)
	}
	switch {
	case err != nil:
		p.Problem = err.Error()
		c.show(v.w, v.r, v.login, 400, "events", "Events", p)
		return nil
	case p.Since == "":
		_, p.Broken = c.activity.hour()
		p.Live = true
		p.Events = c.activity.newest(maxShown+1, func(t *loggedEvent) bool { return q.Wants(t.Stored) })
	default:
		if err := c.search(v.r.Context(), q, p); err != nil {
			return err
		}
	}
	if len(p.Events) > maxShown {
		p.Events, p.More = p.Events[:maxShown], true
	}
	return c.page(v, "events", "Events", p)
}

func (c eventPages) search(ctx context.Context, q events.Query, p *eventsPage) error {
	bounded, cancel := context.WithTimeout(ctx, searchTime)
	defer cancel()
	var found []*events.Stored
	err := c.cfg.Events.Events(bounded, q, func(e *events.Stored) error {
		if len(found) > 2*maxShown {
			found = slices.Delete(found, 0, maxShown)
		}
		found = append(found, e)
		return nil
	})
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		p.Partial, err = true, nil
	}
	if err != nil {
		return err
	}
	slices.Reverse(found)
	for _, e := range found[:min(len(found), maxShown+1)] {
		p.Events = append(p.Events, decodeEvent(e))
	}
	return nil
}
