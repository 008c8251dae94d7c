package httpapi

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"muster/internal/cli"
	"muster/provisioner/events"
	"muster/provisioner/trust"
)

// eventBeat keeps an idle stream of server-sent events open: most proxies cut it after 60 s of silence.
const eventBeat = 15 * time.Second

const (
	typeSSE    = "text/event-stream"
	typeNDJSON = "application/x-ndjson"
)

// eventRoutes serve events as server-sent events, or as JSON lines if the client accepts those.
func eventRoutes(s *Server) {
	need := viewer.on(inAnswer)
	s.handle("GET /v1/events", need, func(w http.ResponseWriter, r *http.Request) {
		v, wrong := parameters(r, events.QueryParameters...)
		if last := r.Header.Get("Last-Event-ID"); last != "" {
			v.Set("after", last)
		}
		q, err := events.ParseQuery(v, s.cfg.Now())
		if err = errors.Join(wrong, err); err != nil {
			s.fail(w, r, badRequest(err))
			return
		}
		q.Of = s.cfg.Fleet.About(sitesOf(r.Context()))
		answer := stream{need: need, form: typeSSE}
		if strings.Contains(r.Header.Get("Accept"), typeNDJSON) {
			answer.form = typeNDJSON
		}
		s.stream(w, r, answer, func(ctx context.Context, started func(uint64), out *reader) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(s.stopping, cancel)() //nolint:contextcheck // the server's end ends its streams
			started(0)
			err := s.follow(ctx, q, &eventWriter{out: out, lines: answer.form == typeNDJSON})
			if ctx.Err() != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				return nil
			}
			return err
		})
	})
}

// follow writes events until they end, ctx is done, or the client stalls or loses its permission.
func (s *Server) follow(ctx context.Context, q events.Query, out *eventWriter) error {
	emitted := make(chan *events.Stored)
	read := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		for range read { // wait for the reading goroutine
		}
	}()
	go func() {
		defer close(read)
		read <- s.cfg.Events.Events(ctx, q, func(e *events.Stored) error {
			select {
			case emitted <- e:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	beat, check := time.NewTicker(eventBeat), time.NewTicker(checkEvery)
	defer beat.Stop()
	defer check.Stop()
	for {
		var err error
		select {
		case e := <-emitted:
			err = out.event(e)
		case err := <-read:
			return err
		case <-beat.C:
			err = out.beat()
		case <-check.C:
			err = out.out.mayStill()
		}
		if err != nil {
			return err
		}
	}
}

// eventWriter writes events as server-sent events or as JSON lines.
type eventWriter struct {
	out   *reader
	lines bool
}

func (o *eventWriter) event(e *events.Stored) error {
	b, err := json.Marshal(e) // one line: JSON escapes line ends
	if err != nil {
		return err
	}
	b = cli.PrintableJSON(b)
	if o.lines {
		return o.out.send(append(b, '\n'))
	}
	return o.out.send(fmt.Appendf(nil, "id: %s\nevent: %s\ndata: %s\n\n", e.Cursor, e.Type, b))
}

// beat writes a comment to keep the stream open. JSON lines have no comments.
func (o *eventWriter) beat() error {
	if o.lines {
		return nil
	}
	return o.out.send([]byte(":\n\n"))
}

// Events calls each for every event of q until they end, ctx is done, or each returns an error, which Events returns.
// line is the event in JSON without a line end. Other errors are those of [Client.Do]. q.After is ignored.
func (c *Client) Events(ctx context.Context, q events.Query, each func(e *events.Stored, line []byte) error) error {
	v := url.Values{}
	set := func(key, value string) {
		if value != "" {
			v.Set(key, value)
		}
	}
	set("type", q.Type)
	set("node", string(q.Node))
	set("code", string(q.Code))
	set("by", q.By)
	if !q.Since.IsZero() {
		set("since", q.Since.UTC().Format(time.RFC3339))
	}
	if q.Once {
		set("once", "true")
	}
	resp, err := c.send(ctx, http.MethodGet, "/v1/events?"+v.Encode(), typeNDJSON, nil)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // only read
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20) // far above the broker's largest message
	for lines.Scan() {
		var e events.Stored
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return fmt.Errorf("answer of the provisioner: %w", err)
		}
		if err := each(&e, lines.Bytes()); err != nil {
			return err
		}
	}
	err = lines.Err()
	if err == nil || ctx.Err() != nil {
		return err
	}
	// A stream that is cut off for lack of permission gives no reason. Another request does.
	if p, ok := errors.AsType[*Problem](c.Do(ctx, http.MethodGet, "/v1/self", nil, nil)); ok {
		return p
	}
	return err
}

func webhookRoutes(s *Server) {
	hooks := s.cfg.Webhooks
	getList(s, viewer, "/v1/webhooks", func(*http.Request) ([]events.Webhook, error) { return hooks.List(), nil })
	post(s, operator, "/v1/webhooks/{name}/test", func(
		r *http.Request, _ *none, c trust.Cause,
	) (*events.WebhookAnswer, error) {
		return hooks.Test(r.Context(), r.PathValue("name"), c.By)
	})
}
