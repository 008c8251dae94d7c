package console

import (
	"fmt"
	"math"
	"time"
)

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
	Bars                      []bar
	Lines                     []tick // by height
	Times                     []tick // by place
	Summary                   string // for who cannot see it
	Busy                      []bar  // minutes in which something happened, the newest first
}

// newRateChart draws the last hour, in which so many were refused.
func newRateChart(h *hour, refused int) *rateChart {
	c := &rateChart{Width: chartWidth, Height: chartHeight, Left: chartLeft, Base: chartHeight - chartBottom}
	most := 0
	for _, m := range h.Minutes {
		most = max(most, m.let+m.refused+m.attempts)
	}
	top := roundUp(most)
	scale := (c.Base - chartTop) / float64(top)
	step := (c.Width - c.Left) / float64(minutes)
	for i, m := range h.Minutes {
		b := bar{X: c.Left + float64(i)*step + 1, Width: step - 2, Let: m.let, Refused: m.refused + m.attempts, At: time.Unix(m.at*60, 0)}
		b.LetHeight, b.RefHeight = float64(b.Let)*scale, float64(b.Refused)*scale
		b.LetY = c.Base - b.LetHeight
		b.RefY = b.LetY - b.RefHeight
		c.Bars = append(c.Bars, b)
		if m.at%15 == 0 && i > 2 && i < minutes-2 {
			c.Times = append(c.Times, tick{b.X + b.Width/2, b.At.UTC().Format("15:04")})
		}
	}
	for i := len(c.Bars) - 1; i >= 0; i-- {
		if b := c.Bars[i]; b.Let+b.Refused > 0 {
			c.Busy = append(c.Busy, b)
		}
	}
	lines := 2
	if top == 1 {
		lines = 1
	}
	for i := range lines + 1 {
		n := top * i / lines
		c.Lines = append(c.Lines, tick{c.Base - float64(n)*scale, number(n)})
	}
	c.Summary = fmt.Sprintf("In the last hour %d nodes were let in and %d requests refused; %d a minute at most.", h.Let, refused, most)
	return c
}

// roundUp returns a number of one digit and zeros, even if it is 2 or more, that
// is not below n.
func roundUp(n int) int {
	if n <= 1 {
		return 1
	}
	unit := int(math.Pow10(len(fmt.Sprint(n)) - 1))
	for _, k := range []int{1, 2, 4, 6, 8, 10} {
		if k*unit >= n && k*unit > 1 {
			return k * unit
		}
	}
	return n // never
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
