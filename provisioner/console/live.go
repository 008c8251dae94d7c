package console

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"muster/provisioner"
)

const (
	// liveEvery is how often a page is told at most that something has changed:
	// it fetches its live parts again. Chosen, an eye does not read faster.
	liveEvery = 2 * time.Second

	// liveCheck is how often it is looked whether who listens may still.
	liveCheck = time.Second

	// liveBeat is how often a stream without news says that it is alive, for
	// proxies that cut what is silent; most wait 60 s. Pages fetch their live
	// parts then as well, since times go by.
	liveBeat = 20 * time.Second

	// liveStall is how long a browser may take nothing. Chosen.
	liveStall = 10 * time.Second
)

// live tells a page when to fetch its live parts again, as server-sent events:
// "changed" when something has happened, "out" when the operator may no longer
// look. There is nothing else in them, so that pages are made in one place.
func (c eventPages) live(v *visit) error {
	control := http.NewResponseController(v.w)
	v.w.Header().Set("Content-Type", "text/event-stream")
	if v.r.Method == http.MethodHead { // whose answer has an end: there is nothing to come
		return nil
	}
	if err := errors.Join(control.SetReadDeadline(time.Time{}), control.SetWriteDeadline(time.Now().Add(liveStall)), control.Flush()); err != nil {
		return err
	}
	send := func(what string) error {
		if err := control.SetWriteDeadline(time.Now().Add(liveStall)); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(v.w, "event: %s\ndata: \n\n", what); err != nil {
			return err
		}
		return control.Flush()
	}
	check, beat := time.NewTicker(liveCheck), time.NewTicker(liveBeat)
	defer check.Stop()
	defer beat.Stop()
	var due <-chan time.Time // when the next news may be told
	news, last := c.activity.changes(), time.Time{}
	for {
		var err error
		select {
		case <-v.r.Context().Done():
			return nil
		case <-c.stopping:
			return nil
		case <-check.C:
			if _, refused := c.authenticate(v.r); errors.Is(refused, provisioner.ErrLogin) {
				_ = send("out") // then or with the next page
				return nil
			}
		case <-beat.C:
			err = send("changed")
		case <-news:
			// At once, and again when that has been written which is written beside
			// the event: who waits, and the list of nodes.
			news = nil
			due = time.After(max(0, liveEvery-time.Since(last)))
		case <-due:
			if news == nil {
				news, due = c.activity.changes(), time.After(liveEvery)
			} else {
				due = nil
			}
			last = time.Now()
			err = send("changed")
		}
		if err != nil {
			return nil //nolint:nilerr // the browser has gone
		}
	}
}
