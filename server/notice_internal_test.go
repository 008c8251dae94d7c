package server

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestTheLastLineIsOfWhatIsTheMatter has a failure be another one for a while: once the first is back
// for good the log says so, and while two take turns it does not say each time.
func TestTheLastLineIsOfWhatIsTheMatter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var n notices
		last, lines := "", 0
		during := func(d time.Duration, texts ...string) {
			for began, i := time.Now(), 0; time.Since(began) < d; i++ {
				text := texts[i%len(texts)]
				if n.news("fleet not reached", text) {
					last, lines = text, lines+1
				}
				<-time.After(time.Minute)
			}
		}
		during(10*time.Minute, "refused")
		during(time.Minute, "nobody listens")
		during(5*time.Minute, "refused")
		if last != "refused" || lines != 3 {
			t.Errorf("%d lines, the last is about %q; want 3, and what is the matter", lines, last)
		}
		during(50*time.Minute, "nobody listens", "refused")
		if lines != 3 {
			t.Errorf("%d more lines for two that take turns", lines-3)
		}
		during(10*time.Hour, "refused")
		if lines > 4 {
			t.Errorf("%d more lines for one that stays", lines-3)
		}
	})
}
