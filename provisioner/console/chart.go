package console

// A rateChart is the last hour, with a bar a minute.
type rateChart struct {
	Minutes []minute // oldest first
	Let     int
	Most    int   // in a minute
	Broken  error // why the counts are not known
}

func newRateChart(hour []minute, broken error) *rateChart {
	c := &rateChart{Minutes: hour, Broken: broken}
	for _, m := range hour {
		c.Most = max(c.Most, m.Let+m.Refused)
		c.Let += m.Let
	}
	return c
}

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
