package console

import "time"

// Size of the chart of the last hour, in its own units.
const (
	chartWidth  = 720
	chartHeight = 150
	chartLeft   = 44 // for the numbers
	chartBottom = 22 // for the times
	chartTop    = 14
)

// A bar of the chart is a minute.
type bar struct {
	X, Width        float64
	Let, Refused    int
	LetY, LetHeight float64
	RefY, RefHeight float64
	At              time.Time
}

// A tick is a line of the chart with its number, or a time below it.
type tick struct {
	At    float64
	Label string
}

// A rateChart is the last hour, a bar a minute.
type rateChart struct {
	Width, Height, Left, Base float64

	Bars   []bar
	Lines  []tick // by height
	Times  []tick // by place
	Let    int
	Most   int   // let in or refused in a minute
	Broken error // why it is not known
}

// newRateChart draws the last hour.
func newRateChart(hour []minute, broken error) *rateChart {
	c := &rateChart{Width: chartWidth, Height: chartHeight, Left: chartLeft, Base: chartHeight - chartBottom, Broken: broken}
	for _, m := range hour {
		c.Most = max(c.Most, m.let+m.refused)
		c.Let += m.let
	}
	scale := (c.Base - chartTop) / float64(max(c.Most, 1))
	step := (c.Width - c.Left) / float64(minutes)
	for i, m := range hour {
		b := bar{X: c.Left + float64(i)*step + 1, Width: step - 2, Let: m.let, Refused: m.refused, At: time.Unix(m.at*60, 0)}
		b.LetHeight, b.RefHeight = float64(b.Let)*scale, float64(b.Refused)*scale
		b.LetY = c.Base - b.LetHeight
		b.RefY = b.LetY - b.RefHeight
		c.Bars = append(c.Bars, b)
		if m.at%15 == 0 && i > 2 && i < minutes-2 {
			c.Times = append(c.Times, tick{b.X + b.Width/2, b.At.UTC().Format("15:04")})
		}
	}
	for _, n := range []int{0, max(c.Most, 1)} {
		c.Lines = append(c.Lines, tick{c.Base - float64(n)*scale, number(n)})
	}
	return c
}

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
