package console

import (
	"errors"
	"io"
	"net/http"
	"time"

	"muster/provisioner/events"
	"muster/provisioner/login"
)

// Times of GET /live.
const (
	liveEvery = time.Second      // between two looks for changes
	liveBeat  = 15 * time.Second // proxies cut a stream after 60 s of silence
	liveStall = time.Minute      // for a write to a browser that reads nothing
)

// live sends a server-sent event when a page may have changed, so that the script of the pages need not ask. It names
// nothing. The login is checked with each line.
func (c *Console) live(v *visit) error {
	v.w.Header().Set("Content-Type", "text/event-stream")
	if v.r.Method == http.MethodHead {
		return nil
	}
	out := http.NewResponseController(v.w)
	_ = out.SetReadDeadline(time.Time{}) // the request has been read
	tick := time.NewTicker(liveEvery)
	defer tick.Stop()
	line, at, sent := ":\n\n", c.position(), time.Now()
	for {
		if line != "" {
			if _, err := c.authenticate(v.r); errors.Is(err, login.ErrLogin) {
				return nil
			}
			_ = out.SetWriteDeadline(time.Now().Add(liveStall)) // if this fails, so does the write
			_, err := io.WriteString(v.w, line)
			if err = errors.Join(err, out.Flush()); err != nil {
				return nil // the browser has gone
			}
			line, sent = "", time.Now()
		}
		select {
		case <-tick.C:
		case <-v.r.Context().Done():
			return nil
		case <-c.stopping.Done():
			return nil
		}
		if now := c.position(); now != at {
			line, at = "data: changed\n\n", now
		} else if time.Since(sent) >= liveBeat {
			line = ":\n\n"
		}
	}
}

// A position changes with each event, each change of a node, and each node of a job.
type position struct {
	nodes uint64
	jobs  uint64
	event *events.Logged // the newest
}

func (c *Console) position() position {
	p := position{nodes: c.cfg.Fleet.Changes(), jobs: c.jobs.tried.Load()}
	if newest := c.cfg.Recent.Newest(1, func(*events.Logged) bool { return true }); len(newest) > 0 {
		p.event = newest[0]
	}
	return p
}
