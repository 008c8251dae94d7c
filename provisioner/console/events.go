package console

import (
	"context"
	"errors"
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
	listForm

	Types   []choice
	Codes   []wire.Code
	Sinces  []choice
	Events  []*events.Logged // newest first
	More    bool             // there are older ones
	Partial bool             // searchTime ended first
	Live    bool
	Broken  error
}

// sinces are the ranges offered. The empty one shows the events in memory, live.
var sinces = []choice{
	{"", "the newest, live"},
	{"1h", "the last hour"},
	{"1d", "the last day"},
	{"7d", "the last week"},
	{"30d", "the last 30 days"},
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
	p := &eventsPage{listForm: formOf(v), Types: eventChoices(), Codes: events.Codes(), Sinces: sinces}
	q, err := events.ParseQuery(p.Values, c.cfg.Now())
	q.Once, q.Of = true, c.cfg.Fleet.About(v.login.Sites)
	switch {
	case err != nil:
		err = badRequest(err)
	case p.Get("since") == "":
		_, _, p.Broken = c.cfg.Recent.Counts(v.r.Context(), events.Periods[0])
		p.Live = true
		p.Events = c.cfg.Recent.Newest(maxShown+1, func(t *events.Logged) bool { return q.Wants(t.Stored) })
	default:
		if err := c.search(v.r.Context(), q, p); err != nil {
			return err
		}
	}
	if len(p.Events) > maxShown {
		p.Events, p.More = p.Events[:maxShown], true
	}
	return c.list(v, "events", "Activity", &p.listForm, p, err)
}

// refusedAs returns the newest refusals of the last hour whose node's name begins with a text, one for each name.
func (c *Console) refusedAs(v *visit, text string) []*events.Logged {
	name, about, had := wire.FoldName(text), c.cfg.Fleet.About(v.login.Sites), make(map[string]bool)
	return c.cfg.Recent.Newest(firstNames, func(l *events.Logged) bool {
		if len(name) < 3 || l.Type != events.Refused || !strings.HasPrefix(l.Data.Node, name) || had[l.Data.Node] {
			return false
		}
		had[l.Data.Node] = true
		return about == nil || about(l.Stored)
	})
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
		p.Events = append(p.Events, events.Decode(e))
	}
	return nil
}
