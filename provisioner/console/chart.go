package console

// A rateChart is the last hour, a bar a minute.
type rateChart struct {
	Minutes []minute // the oldest first
	Let     int
	Most    int   // let in or refused in a minute
	Broken  error // why it is not known
}

// newRateChart counts the last hour.
func newRateChart(hour []minute, broken error) *rateChart {
	c := &rateChart{Minutes: hour, Broken: broken}
	for _, m := range hour {
		c.Most = max(c.Most, m.Let+m.Refused)
		c.Let += m.Let
	}
	return c
}

// Height is that of the chart, in machines.
func (c *rateChart) Height() int { return max(c.Most, 1) }

// A row of a chart has a bar of its own.
type row struct {
	Label string
	Link  string // empty: none
	Tone  string
	Title string
	Count int
	Part  float64 // of the longest, in percent
}

// bars gives each row its part of the longest.
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
