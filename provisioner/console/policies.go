package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"muster/policies"
	"muster/provisioner"
)

// Bounds of a replay; chosen. A day of a busy installation is a million decisions,
// which take a core for some minutes: the rest is for `muster policy replay`, which
// runs on the operator's machine.
const (
	replayLimit     = 2 * time.Minute
	maxDifferences  = 200
	maxShadowEvents = 20
)

// errReplaying means that one replay runs already.
var errReplaying = errors.New("a replay is running already: wait for it")

// A replays is the last replay of the shadow policy, or the one that runs. It is
// this process's, and safe for concurrent use.
type replays struct {
	begun chan *replayed // one at most

	mu   sync.Mutex
	last *replayed // guarded by mu
}

func newReplays() *replays { return &replays{begun: make(chan *replayed, 1)} }

// run runs the replays that begin until ctx is done, and returns nil then.
func (r *replays) run(ctx context.Context, replay func(context.Context, time.Duration) (*policies.ReplayReport, error), now func() time.Time) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case one := <-r.begun:
			bounded, cancel := context.WithTimeout(ctx, replayLimit)
			report, err := replay(bounded, one.Since)
			if err != nil && bounded.Err() != nil {
				err = fmt.Errorf("ended after %v: take a shorter time, or `muster policy replay`, which runs on your machine", replayLimit)
			}
			cancel()
			r.end(one, now(), report, err)
		}
	}
}

// A replayed is a replay, and what came of it.
type replayed struct {
	By      string
	Since   time.Duration
	Begun   time.Time
	Ended   time.Time // zero while it runs
	Report  *policies.ReplayReport
	Problem string
}

// Over says in words what was replayed.
func (r *replayed) Over() string {
	for _, c := range ages {
		if d, err := time.ParseDuration(c.Value); err == nil && d == r.Since {
			return c.Label
		}
	}
	return r.Since.String()
}

func (r *replays) get() *replayed {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		return nil
	}
	one := *r.last
	return &one
}

// begin begins a replay, unless one runs.
func (r *replays) begin(one *replayed) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last != nil && r.last.Ended.IsZero() {
		return errReplaying
	}
	r.last = one
	r.begun <- one // there is room: the one before has ended
	return nil
}

func (r *replays) end(one *replayed, at time.Time, report *policies.ReplayReport, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	one.Ended, one.Report = at, report
	if err != nil {
		one.Problem = err.Error()
	}
}

// policiesPage is what decides, and what would.
type policiesPage struct {
	InUse     *provisioner.PolicyInUse
	Changes   []*told // the last reloads
	Shadow    *Shadow // nil: there is none
	Differs   []*told // what it decided otherwise lately
	CanReplay bool
	Replay    *replayed // nil: there was none
	Shown     []*policies.NodeReplay
	More      int // that differ as well
	Done      string
	Problem   string // with what was sent
	Why       string // that was given then
	Ages      []choice
}

// ages are how far a replay may look back.
var ages = []choice{{"1h", "the last hour"}, {"6h", "the last 6 hours"}, {"24h", "the last day"}}

func (c *Console) policies(v *visit) error {
	p := &policiesPage{}
	if v.r.URL.Query().Get("done") == "reload" {
		p.Done = "The policy's files were read again."
	}
	return c.showPolicies(v, http.StatusOK, p)
}

// showPolicies fills the page in and shows it.
func (c *Console) showPolicies(v *visit, status int, p *policiesPage) error {
	p.InUse, p.CanReplay, p.Replay, p.Ages = c.cfg.Provisioner.Policy(), c.cfg.Replay != nil, c.replays.get(), ages
	if c.cfg.Shadow != nil {
		p.Shadow = c.cfg.Shadow()
	}
	p.Changes = c.activity.newest(maxShadowEvents, func(t *told) bool {
		return t.Type == provisioner.EventPolicyReloaded || t.Type == provisioner.EventPolicyRefused
	})
	p.Differs = c.activity.newest(maxShadowEvents, func(t *told) bool { return t.Type == provisioner.EventShadowDiffers })
	if r := p.Replay; r != nil && r.Report != nil {
		p.Shown = r.Report.Differences[:min(maxDifferences, len(r.Report.Differences))]
		p.More = len(r.Report.Differences) - len(p.Shown)
	}
	c.show(v.w, v.r, v.login, status, "policies", "Policies", p)
	return nil
}

// reloadPolicy reads the policy's files now.
func (c *Console) reloadPolicy(v *visit) error {
	if err := reason(v); err != nil {
		return c.showPolicies(v, statusOf(err), &policiesPage{Problem: err.Error(), Why: v.r.PostForm.Get("why")})
	}
	if _, err := c.cfg.Provisioner.ReloadPolicy(v.r.Context(), v.cause()); err != nil {
		return err
	}
	http.Redirect(v.w, v.r, "/policies?done=reload", http.StatusSeeOther)
	return nil
}

// startReplay has the shadow policy run over what was recorded, for whoever looks
// at the page. It changes nothing, and goes on when the browser has gone.
func (c *Console) startReplay(v *visit) error {
	age, err := time.ParseDuration(v.r.PostForm.Get("since"))
	if err != nil || age <= 0 || age > 24*time.Hour {
		return &formError{errors.New("since: want one of the list")}
	}
	if c.cfg.Replay == nil {
		return errNoPage
	}
	one := &replayed{By: v.login.By(), Since: age, Begun: c.cfg.Now()}
	if err := c.replays.begin(one); err != nil {
		return err
	}
	http.Redirect(v.w, v.r, "/policies#replay", http.StatusSeeOther)
	return nil
}
