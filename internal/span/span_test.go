package span_test

import (
	"testing"
	"time"

	"muster/internal/span"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]time.Duration{
		"1y":           span.Year,
		"30d":          30 * span.Day,
		"12h":          12 * time.Hour,
		"1d12h":        36 * time.Hour,
		"2M":           60 * span.Day,
		"2m":           2 * time.Minute,
		"1w":           span.Week,
		"90s":          90 * time.Second,
		"0s":           0,
		"1h0m0s":       time.Hour,
		"100ms":        100 * time.Millisecond,
		"1Y1W1D1H1S":   span.Year + span.Week + span.Day + time.Hour + time.Second,
		"1m500ms":      time.Minute + time.Second/2,
		"292y":         292 * span.Year,
		"292y20d1ms1s": 292*span.Year + 20*span.Day + time.Second + time.Millisecond,
	} {
		if got, err := span.Parse(in); err != nil || got != want {
			t.Errorf("Parse(%q) = %v, %v, want %v", in, got, err, want)
		}
	}
	for _, in := range []string{
		"", "1", "y", "1 y", "-1y", "+1y", "1.5h", "1x", "1yy", "y1", "293y", "99999999999999999999s", "1µs", "292y292y",
	} {
		if got, err := span.Parse(in); err == nil || got != 0 {
			t.Errorf("Parse(%q) = %v, %v, want an error", in, got, err)
		}
	}
}

func TestFormat(t *testing.T) {
	t.Parallel()
	for in, want := range map[time.Duration]string{
		0:                                   "less than 1s",
		time.Second:                         "1s",
		90 * time.Second:                    "1m 30s",
		-36 * time.Hour:                     "1d 12h",
		span.Year + 40*span.Day + time.Hour: "1y 40d",
		span.Year + time.Hour:               "1y",
		10 * span.Day:                       "10d",
		999 * time.Millisecond:              "less than 1s",
		1500 * time.Millisecond:             "2s",
		59600 * time.Millisecond:            "1m",
		span.Year - time.Millisecond:        "1y",
		span.Year - time.Hour:               "364d 23h",
		2*span.Year - time.Hour:             "2y",
		12*time.Hour - 10*time.Second:       "12h",
		span.Day - 40*time.Second:           "23h 59m",
		span.Day - 20*time.Second:           "1d",
	} {
		if got := span.Format(in); got != want {
			t.Errorf("Format(%v) = %q, want %q", in, got, want)
		}
	}
}

func TestAge(t *testing.T) {
	t.Parallel()
	for in, want := range map[time.Duration]string{
		0: "0s", -90 * time.Second: "90s", 90 * time.Minute: "90m", 30 * time.Hour: "30h", 400 * span.Day: "400d",
		3652 * span.Day: "10y 2d",
	} {
		if got := span.Age(in); got != want {
			t.Errorf("Age(%v) = %q, want %q", in, got, want)
		}
	}
}

func TestParseTime(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for in, want := range map[string]time.Time{
		"2027-01-31T12:00:00Z":      time.Date(2027, 1, 31, 12, 0, 0, 0, time.UTC),
		"2027-01-31T12:00:00+02:00": time.Date(2027, 1, 31, 10, 0, 0, 0, time.UTC),
		"12h":                       now.Add(12 * time.Hour),
	} {
		if got, err := span.ParseTime(in, now); err != nil || !got.Equal(want) {
			t.Errorf("ParseTime(%q) = %v, %v, want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "tomorrow", "2027-01-31", "-12h", "0001-01-01T00:00:00Z"} {
		if got, err := span.ParseTime(in, now); err == nil || !got.IsZero() {
			t.Errorf("ParseTime(%q) = %v, %v, want an error", in, got, err)
		}
	}
	if _, err := span.ParseTime("99999999999d", now); err == nil || err.Error() != `"99999999999d" is longer than 292 years` {
		t.Errorf("ParseTime of 99999999999d = %v, want that it is too long", err)
	}
	if got, err := span.ParsePast("12h", now); err != nil || !got.Equal(now.Add(-12*time.Hour)) {
		t.Errorf("ParsePast of 12h = %v, %v, want 12h before %v", got, err, now)
	}
}
