package webhook

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"muster/internal/wire"
	"muster/provisioner/events"
)

// Bounds of what a webhook may ask for. Standard Webhooks wants 15 to 30 s for the
// endpoint.
const (
	MinTimeout     = time.Second
	DefaultTimeout = 15 * time.Second
	MaxTimeout     = 30 * time.Second
)

// atOnce bounds the requests that one process has at an endpoint, of events that
// strangers cause and of all others; chosen.
const maxRequests = 4

// lookEvery is how often it is looked up how many events wait; chosen, below the
// usual distance of two scrapes.
const waitingInterval = 10 * time.Second

// Config is one webhook.
type Config struct {
	// Name tells it from others: lower-case letters, digits and dashes, 1 to 32.
	// What waits for an endpoint waits under its name. Required.
	Name string

	// URL is where events go; see [ParseURL]. Required.
	URL string

	Secrets Secrets       // required
	Events  []events.Type // required; see [Types]

	// Timeout bounds one request. Default [DefaultTimeout].
	Timeout time.Duration

	// Roots are the authorities of the endpoint's certificate; nil are the system's.
	Roots *x509.CertPool

	// Schedule says when an event is tried again. Default [DefaultSchedule].
	Schedule Schedule

	// AlarmAfter is how long an endpoint must have failed for an alarm. Default 5 m:
	// one that is restarted is none.
	AlarmAfter time.Duration

	// Forget is when the place in the log of a webhook is forgotten that nobody
	// configures any more. Default 72 h: whoever takes one out for a day by mistake
	// loses nothing.
	Forget time.Duration

	Version string // of muster, for the endpoint

	Log *slog.Logger     // default discards
	Now func() time.Time // default [time.Now]
}

// complete returns cfg with its defaults.
func (cfg Config) withDefaults() Config {
	cfg.Timeout = cmp.Or(cfg.Timeout, DefaultTimeout)
	if cfg.Schedule == (Schedule{}) {
		cfg.Schedule = DefaultSchedule
	}
	cfg.AlarmAfter, cfg.Forget = cmp.Or(cfg.AlarmAfter, 5*time.Minute), cmp.Or(cfg.Forget, 72*time.Hour)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return cfg
}

// DefaultEvents are what a webhook gets that does not say: whoever was refused,
// two machines with one key, and alarms.
var DefaultEvents = []string{"node.refused", "attempt.refused", "node.cloned", "alarm"}

// Types returns the types that begin with one of the names; io.muster. may be left
// out of them. The error says which names no type begins with.
func Types(names []string) ([]events.Type, error) {
	var all []events.Type
	var errs []error
	for _, name := range names {
		prefix := "io.muster." + strings.TrimPrefix(name, "io.muster.")
		found := false
		for _, m := range events.Types {
			if !strings.HasPrefix(string(m.Type), prefix) || m.Type == events.WebhookTest {
				continue
			}
			if found = true; !slices.Contains(all, m.Type) {
				all = append(all, m.Type)
			}
		}
		if !found {
			errs = append(errs, fmt.Errorf("no type of events begins with %.64q, see docs/reference/events.md", name))
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return all, nil
}

// A Set is the webhooks of one process. Make one with [New]. Safe for concurrent
// use.
type Set struct {
	hooks  []*hook
	alarms *events.Alarms
}

// New returns the webhooks, which do nothing until Run. Their trouble goes to
// alarms.
func New(configs []Config, alarms *events.Alarms) (*Set, error) {
	s := &Set{alarms: alarms}
	for _, cfg := range configs {
		cfg = cfg.withDefaults()
		e, err := newEndpoint(&cfg)
		if err != nil {
			return nil, fmt.Errorf("webhook %s: %w", cfg.Name, err)
		}
		s.hooks = append(s.hooks, &hook{cfg: cfg, tries: cfg.Schedule.Tries(), endpoint: e, log: cfg.Log, alarmChanged: s.updateAlarm})
	}
	return s, nil
}

// trouble raises the alarm while any webhook fails, and clears it when none does. Hooks
// call it when that may have changed, several at once: so it goes by how they are now, and
// not by what each has met.
func (s *Set) updateAlarm(ctx context.Context) {
	s.alarms.Keep(ctx, events.AlarmWebhookFailed, func() error {
		var causes []string
		for _, h := range s.hooks {
			if c := h.alarmCause(); c != "" {
				causes = append(causes, h.title()+": "+c)
			}
		}
		if len(causes) == 0 {
			return nil
		}
		return errors.New(strings.Join(causes, "; "))
	})
}

// Run delivers events from the log until ctx is done, and returns nil once all
// that is in hand is over.
func (s *Set) Run(ctx context.Context, log events.Subscriptions) error {
	var g sync.WaitGroup
	for _, h := range s.hooks {
		g.Go(func() { log.Subscribe(ctx, h.subscription(), h.deliver) })
		g.Go(func() { h.pollWaiting(ctx, log) })
	}
	g.Wait()
	for _, h := range s.hooks {
		h.endpoint.http.CloseIdleConnections()
	}
	return nil
}

// look looks up how many events wait, again and again.
func (h *hook) pollWaiting(ctx context.Context, log events.Subscriptions) {
	tick := time.NewTicker(waitingInterval)
	defer tick.Stop()
	for {
		if n, err := log.Waiting(ctx, h.subscription()); err == nil { // else whoever delivers says what ails the log
			h.setWaiting(ctx, n)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// List implements [events.Webhooks].
func (s *Set) List() []events.Webhook {
	all := make([]events.Webhook, len(s.hooks))
	for i, h := range s.hooks {
		all[i] = h.status()
	}
	return all
}

// Test implements [events.Webhooks]. It counts for nothing else.
func (s *Set) Test(ctx context.Context, name, by string) (*events.WebhookAnswer, error) {
	i := slices.IndexFunc(s.hooks, func(h *hook) bool { return h.cfg.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("%w: %.64q", events.ErrUnknownWebhook, name)
	}
	h := s.hooks[i]
	data, err := json.Marshal(events.Event{By: by})
	if err != nil {
		return nil, err
	}
	id := wire.NewID()
	body, err := json.Marshal(&events.Stored{SpecVersion: "1.0", ID: id, Source: "io.muster.provisioner", Type: events.WebhookTest,
		Time: h.cfg.Now().UTC().Truncate(time.Second), DataContentType: "application/json", Data: data})
	if err != nil {
		return nil, err
	}
	answer, _ := h.endpoint.post(ctx, id, body)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return &answer, nil
}
