package webhook

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"muster/internal/span"
	"muster/internal/wire"
	"muster/provisioner/events"
)

// Timeouts of a request. Standard Webhooks recommends 15 to 30 s.
const (
	MinTimeout     = time.Second
	DefaultTimeout = 15 * time.Second
	MaxTimeout     = 30 * time.Second
)

// maxRequests bounds the concurrent requests of one process to an endpoint, for each stream.
const maxRequests = 4

// waitingInterval is shorter than the usual interval of scrapes.
const waitingInterval = 10 * time.Second

// Config is one webhook.
type Config struct {
	// Name has 1 to 32 lower-case letters, digits and dashes. Waiting events are stored under this name. Required.
	Name string

	// URL is for [ParseURL]. Required.
	URL string

	Secrets Secrets       // required
	Events  []events.Type // required; see [Types]

	// Timeout bounds one request. Default [DefaultTimeout].
	Timeout time.Duration

	// Roots verify the endpoint's certificate; nil means the system's roots.
	Roots *x509.CertPool

	// Schedule defaults to [DefaultSchedule].
	Schedule Schedule

	// AlarmAfter is how long an endpoint must fail for an alarm. Default 5 m.
	AlarmAfter time.Duration

	// ExpireAfter is how long events of a removed webhook are kept. Default 72 h.
	ExpireAfter time.Duration

	Version string // of muster, for the User-Agent header

	Log *slog.Logger     // default discards
	Now func() time.Time // default [time.Now]
}

func (cfg Config) withDefaults() Config {
	cfg.Timeout = cmp.Or(cfg.Timeout, DefaultTimeout)
	if cfg.Schedule == (Schedule{}) {
		cfg.Schedule = DefaultSchedule
	}
	cfg.AlarmAfter, cfg.ExpireAfter = cmp.Or(cfg.AlarmAfter, 5*time.Minute), cmp.Or(cfg.ExpireAfter, 72*time.Hour)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return cfg
}

// DefaultEvents are sent if the configuration names none.
var DefaultEvents = []string{"node.refused", "attempt.refused", "node.cloned", "node.fault", "alarm"}

// Types returns the event types that begin with one of the names. Names may omit "io.muster.".
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
			errs = append(errs, fmt.Errorf("no event type begins with %.64q, see docs/reference/events.md", name))
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return all, nil
}

// A Set holds the webhooks of one process. Make one with [New]. It is safe for concurrent use.
type Set struct {
	hooks  []*hook
	alarms *events.Alarms
}

// New returns a Set that does nothing before [Set.Run].
func New(configs []Config, alarms *events.Alarms) (*Set, error) {
	s := &Set{alarms: alarms}
	for _, cfg := range configs {
		cfg = cfg.withDefaults()
		e, err := newEndpoint(&cfg)
		if err != nil {
			return nil, fmt.Errorf("webhook %s: %w", cfg.Name, err)
		}
		s.hooks = append(s.hooks,
			&hook{cfg: cfg, tries: cfg.Schedule.Tries(), endpoint: e, alarmChanged: s.updateAlarm})
	}
	return s, nil
}

// Hooks call updateAlarm concurrently, so it reads the current state of each.
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

// Run delivers events until ctx is done, and returns nil after the last delivery.
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

func (h *hook) pollWaiting(ctx context.Context, log events.Subscriptions) {
	_ = span.Every(ctx, waitingInterval, func(ctx context.Context) {
		if n, err := log.Waiting(ctx, h.subscription()); err == nil { // errors are logged by Subscribe
			h.setWaiting(ctx, n)
		}
	})
}

// List implements [events.Webhooks].
func (s *Set) List() []events.Webhook {
	all := make([]events.Webhook, len(s.hooks))
	for i, h := range s.hooks {
		all[i] = h.status()
	}
	return all
}

// Test implements [events.Webhooks]. It changes no counts.
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
	body, err := json.Marshal(&events.Stored{
		SpecVersion:     "1.0",
		ID:              id,
		Source:          "io.muster.provisioner",
		Type:            events.WebhookTest,
		Time:            h.cfg.Now().UTC().Truncate(time.Second),
		DataContentType: "application/json",
		Data:            data,
	})
	if err != nil {
		return nil, err
	}
	answer, _ := h.endpoint.post(ctx, id, body)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return &answer, nil
}

// A Schedule doubles the wait between tries from First to Max, give or take a quarter, and gives up after about Total.
type Schedule struct{ First, Max, Total time.Duration }

// DefaultSchedule lets an endpoint be down over a weekend. A repaired endpoint gets its events within ten minutes.
var DefaultSchedule = Schedule{First: 5 * time.Second, Max: 10 * time.Minute, Total: 72 * time.Hour}

// Planned returns the wait after the n-th try, from 1, without randomness.
func (s Schedule) Planned(n int) time.Duration {
	wait := s.First
	for ; n > 1 && wait < s.Max; n-- {
		wait *= 2
	}
	return min(wait, s.Max)
}

// Wait returns the wait after the n-th try, from 1. A longer retryAfter of the endpoint counts up to Max.
func (s Schedule) Wait(n int, retryAfter time.Duration) time.Duration {
	const quarter = 4
	wait := s.Planned(n)
	//nolint:gosec // spreads load, hides nothing
	wait += time.Duration((rand.Float64()*2 - 1) * float64(wait) / quarter)
	return max(wait, min(retryAfter, s.Max))
}

// Tries returns how many tries an event gets. Tries are counted, not timed, since clocks jump.
func (s Schedule) Tries() int {
	n := 1
	for spent := time.Duration(0); spent < s.Total; n++ {
		spent += s.Planned(n)
	}
	return n
}
