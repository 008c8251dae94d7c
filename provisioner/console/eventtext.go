package console

import (
	"errors"
	"fmt"
	"strings"

	"muster/provisioner/events"
)

// eventText is the text of an event besides its type and node.
func eventText(t *events.Logged) string {
	d := &t.Data
	var parts []string
	for _, p := range []struct{ format, value string }{
		{"%s", string(d.Verb)},
		{"%s", d.Name},
		{"%s", string(d.Code)},
		{"reason: %s", string(d.Reason)},
		{"operator %s", d.Operator},
		{"role %s", string(d.Role)},
		{"names %s", string(d.Pattern)},
		{"%s", strings.TrimRight(d.Cause, ": ")},
		{"from %s", d.Source},
		{"by %s", strings.TrimPrefix(d.By, "operator:")},
		{"“%s”", d.Why},
	} {
		if p.value != "" {
			parts = append(parts, fmt.Sprintf(p.format, p.value))
		}
	}
	if d.LeftOut > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", d.LeftOut))
	}
	if d.Repeated {
		parts = append(parts, "again")
	}
	if len(parts) == 0 && d.Policy != "" {
		parts = append(parts, "policy "+short(d.Policy))
	}
	return strings.Join(parts, " · ")
}

// A rateChart is a period with a bar for each step.
type rateChart struct {
	events.Period
	Steps             []events.Counts // oldest first
	Admitted, Refused int
	Most              int   // in a step
	Broken            error // why the counts are not complete
}

// Periods are those to choose from.
func (c *rateChart) Periods() []events.Period { return events.Periods }

// Reading reports whether the counts will be complete soon.
func (c *rateChart) Reading() bool { return errors.Is(c.Broken, events.ErrUnread) }

// Height is the number of requests at full height.
func (c *rateChart) Height() int { return max(c.Most, 1) }

// A row is a labeled bar.
type row struct {
	Label string
	Link  string // or empty
	Tone  string
	Title string
	Count int
	Part  float64 // of the longest bar, in percent
}

func bars(rows []row) []row {
	most := 0
	for _, r := range rows {
		most = max(most, r.Count)
	}
	for i := range rows {
		if rows[i].Count > 0 {
			rows[i].Part = max(1, 100*float64(rows[i].Count)/float64(most))
		}
	}
	return rows
}
