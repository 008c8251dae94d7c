package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/internal/paging"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/fleet"
	"muster/provisioner/operate"
	"muster/provisioner/trust"
)

// Limits of jobs.
const (
	maxJobs        = 50 // kept
	jobConcurrency = 50 // nodes at a time, as the commands have it
	firstNames     = 10
)

var (
	errStopped = errors.New("stopped")
	errNoJob   = &mistake{http.StatusNotFound, errors.New("this provisioner does not have this job, since it has " +
		"started again or had too many: orders that were carried out stay so; filter the list again for the rest")}
	errNoneApply = &mistake{http.StatusConflict, errors.New("the action applies to none of the chosen nodes")}
	errEnds      = &mistake{http.StatusServiceUnavailable, errors.New("this provisioner ends: nothing was done")}

	errNothingLeft = &mistake{http.StatusConflict, errors.New("the job has no nodes left to try, or has not stopped")}
)

// A target is a node, or a waiting key, of a job.
type target struct {
	node wire.Identity
	do   func(context.Context, trust.Cause) error
}

// A job is an order for many nodes. A chosen one begins when the operator has confirmed it.
type job struct {
	*action

	ID     string // of its commands too
	Back   string // list that it was chosen from
	By     string // operator
	Chosen int
	States map[provisioner.State]int
	Other  int // chosen nodes that the action does not apply to, which are left out

	tried *atomic.Uint64
	now   func() time.Time

	mu      sync.Mutex
	state   jobState    // guarded by mu
	left    []target    // guarded by mu; not while it runs
	cause   trust.Cause // guarded by mu
	max     int         // guarded by mu: failures
	stopped bool        // guarded by mu
}

// A jobState is the progress of a job.
type jobState struct {
	operate.Outcome

	Why          string
	Began, Ended time.Time // zero: has not begun, or runs
}

// choose adds a target before the job begins.
func (j *job) choose(node wire.Identity, do func(context.Context, trust.Cause) error) {
	j.left = append(j.left, target{node, do})
	j.Chosen++
}

// Names are the first ones that it is for.
func (j *job) Names() (names []wire.Identity) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, t := range j.left[:min(firstNames, len(j.left))] {
		names = append(names, t.node)
	}
	return names
}

// Things are what it is for.
func (j *job) Things() string {
	if j.Back == "/approvals" || strings.HasPrefix(j.Back, "/approvals?") {
		return "key"
	}
	return "node"
}

// State returns the progress.
func (j *job) State() jobState {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.state
}

// Tried is the number of nodes that need no other try.
func (s *jobState) Tried() int { return s.Done + len(s.Failed) + len(s.Alone) }

// Untried is the number of the other ones.
func (j *job) Untried() int {
	s := j.State()
	return j.Chosen - s.Tried()
}

func (j *job) halted() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.stopped
}

func (j *job) halt() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.stopped = true
}

// run tries the nodes that are left. Orders under way are finished.
func (j *job) run(ctx context.Context) {
	finishing, end := provisioner.Finishing(ctx)
	defer end()
	j.mu.Lock()
	outcome, left, cause := j.state.Outcome, j.left, j.cause
	many := operate.Batch{
		Concurrency: jobConcurrency,
		MaxFailures: j.max,
		Alone:       func(err error) bool { return errors.Is(err, provisioner.ErrChanged) },
		Over:        func(err error) bool { return errors.Is(err, errStopped) },
		Tried: func(o *operate.Outcome) {
			j.tried.Add(1)
			j.mu.Lock()
			defer j.mu.Unlock()
			j.state.Outcome = *o
		},
	}
	j.mu.Unlock()
	nodes := make([]wire.Identity, len(left))
	for i := range left {
		nodes[i] = left[i].node
	}
	through := make([]bool, len(left))
	many.Run(ctx, &outcome, nodes, func(ctx context.Context, i int) error {
		if ctx.Err() != nil || j.halted() {
			return errStopped
		}
		err := left[i].do(finishing, cause)
		through[i] = err == nil || ctx.Err() == nil
		return err
	})
	var rest []target
	for i, done := range through {
		if !done {
			rest = append(rest, left[i])
		}
	}
	j.tried.Add(1)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.state.Outcome, j.state.Ended, j.left = outcome, j.now(), rest
}

// jobs are the newest ones of this process. A restart loses them, but no order that was carried out.
type jobs struct {
	begun chan *job
	tried atomic.Uint64 // nodes

	mu  sync.Mutex
	all []*job // guarded by mu: newest first
}

func (s *jobs) run(ctx context.Context) error {
	var g errgroup.Group
	for {
		select {
		case j := <-s.begun:
			g.Go(func() error { j.run(ctx); return nil })
		case <-ctx.Done():
			return g.Wait()
		}
	}
}

// list returns the jobs that have begun.
func (s *jobs) list() []*job {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.all), func(j *job) bool { return j.State().Began.IsZero() })
}

func (s *jobs) find(id string) (*job, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.IndexFunc(s.all, func(j *job) bool { return j.ID == id }); i >= 0 {
		return s.all[i], nil
	}
	return nil, errNoJob
}

// add keeps a job, instead of the one that its operator has chosen before and not confirmed, and of the oldest.
func (s *jobs) add(j *job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = slices.DeleteFunc(s.all, func(o *job) bool { return o.By == j.By && o.State().Began.IsZero() })
	for i := len(s.all) - 1; i >= 0 && len(s.all) >= maxJobs; i-- {
		if !s.all[i].State().Ended.IsZero() {
			s.all = slices.Delete(s.all, i, i+1)
		}
	}
	s.all = slices.Insert(s.all, 0, j)
}

// begin has a job tried that was chosen, or stopped before its end. A job that has begun is not begun again.
func (c *Console) begin(ctx context.Context, j *job, first bool, set func()) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch begun := !j.state.Began.IsZero(); {
	case begun && first:
		return nil
	case begun && j.state.Ended.IsZero(), !begun && !first, len(j.left) == 0:
		return errNothingLeft
	}
	set()
	began := j.state.Began
	j.state.Began, j.state.Ended, j.stopped = cmp.Or(began, c.cfg.Now()), time.Time{}, false
	select {
	case c.jobs.begun <- j:
		return nil
	case <-ctx.Done():
	case <-c.ended:
	}
	j.state.Began, j.state.Ended = began, c.cfg.Now()
	return errEnds
}

// nodes serves an order for the ticked nodes, or for all that match the list's filter. A grant for one node has a page
// of its own, which names the key.
func (c manyPages) nodes(v *visit) error {
	form := v.r.PostForm
	each, to := form["each"], ""
	switch {
	case form.Has("job"), form.Has("all"):
	case len(each) == 0:
		to = "/nodes?none&" + form.Get("query")
	case len(each) == 1 && form.Get("verdict") == "grant":
		name, seen, _ := strings.Cut(each[0], "/")
		to = "/nodes/" + url.PathEscape(name) + "/do/grant?seen=" + url.QueryEscape(seen)
	}
	if to != "" {
		http.Redirect(v.w, v.r, to, http.StatusSeeOther)
		return nil
	}
	return c.ordered(nodeActions, func(v *visit, o *order) error { return c.order(v, o, c.choose) })(v)
}

// order has the operator confirm a chosen job, which then begins.
func (c manyPages) order(v *visit, o *order, choose func(*visit, *action) (*job, error)) error {
	j, err := c.jobs.find(v.r.PostForm.Get("job"))
	if !v.r.PostForm.Has("job") {
		if j, err = choose(v, o.action); err == nil && j.Chosen == 0 {
			return errNoneApply
		}
	} else if err == nil && j.action != o.action {
		return errNoPage
	}
	if err != nil {
		return err
	}
	o.Many, o.Back, o.then = j, j.Back, "/jobs/"+j.ID
	o.Fields = url.Values{"job": {j.ID}, "verdict": {o.Name}}
	var most int
	if o.Max, most, err = failures(v); err != nil {
		return err
	}
	if !v.r.PostForm.Has("job") {
		c.jobs.add(j)
	}
	o.do = func(ctx context.Context, cause trust.Cause) error {
		return c.begin(ctx, j, true, func() { j.cause, j.state.Why, j.max = cause, cause.Why, most })
	}
	return nil
}

// failures returns how many may fail, also as text.
func failures(v *visit) (text string, most int, err error) {
	text = cmp.Or(v.r.PostForm.Get("failures"), "10")
	if most, err = strconv.Atoi(text); err != nil || most < 0 {
		return text, 0, badRequest(fmt.Errorf("failures: %.40q, want a number of nodes", text))
	}
	return text, most, nil
}

func (c manyPages) newJob(v *visit, a *action, back string) *job {
	return &job{
		action: a,
		ID:     wire.NewID(),
		Back:   back,
		By:     v.login.By(),
		States: make(map[provisioner.State]int),
		tried:  &c.jobs.tried,
		now:    c.cfg.Now,
	}
}

func (c manyPages) choose(v *visit, a *action) (*job, error) {
	j := c.newJob(v, a, "/nodes?"+v.r.PostForm.Get("query"))
	add := func(n *fleet.Node, seen provisioner.Precondition) {
		if !slices.Contains(a.states, n.State) {
			j.Other++
			return
		}
		grant := operate.GrantOrder{ID: j.ID, Seen: seen}
		id := n.Identity
		j.States[n.State]++
		j.choose(id, func(ctx context.Context, cause trust.Cause) error { return c.carryOut(ctx, a, id, grant, cause) })
	}
	if v.r.PostForm.Has("all") {
		given, err := url.ParseQuery(v.r.PostForm.Get("query"))
		if err != nil {
			return nil, badRequest(err)
		}
		given.Del("sort") // lists each node once if it is sorted by name
		return j, c.every(v, given, func(n *fleet.Node) {
			add(n, provisioner.Precondition{Revision: n.Revision, OwnedSince: n.OwnedSince})
		})
	}
	for _, text := range v.r.PostForm["each"] {
		name, seen, _ := strings.Cut(text, "/")
		id, err := wire.ParseName(name)
		if err != nil {
			return nil, badRequest(err)
		}
		shown, err := parseSeen(seen)
		if err != nil {
			return nil, err
		}
		if n, known := c.cfg.Fleet.Find(id); known {
			add(&n, shown)
		}
	}
	return j, nil
}

// every calls each for every node of the list.
func (c *Console) every(v *visit, given url.Values, each func(*fleet.Node)) error {
	given = maps.Clone(given)
	given.Del("page")
	given.Del("cursor")
	given.Set("limit", strconv.Itoa(paging.MaxLimit))
	f, err := c.find(v, given)
	for err == nil {
		for i := range f.page.Nodes {
			each(&f.page.Nodes[i])
		}
		if f.query.Cursor = f.page.Next; f.query.Cursor == "" {
			break
		}
		f.page, err = c.cfg.Fleet.List(v.r.Context(), f.query)
	}
	return err
}

type jobPage struct {
	*job

	State jobState
	Left  int // not tried
}

func (c manyPages) recent(v *visit) error {
	return c.page(v, "jobs", "Jobs", struct{ All []*job }{c.jobs.list()})
}

func (c manyPages) progress(v *visit) error {
	j, err := c.jobs.find(v.r.PathValue("id"))
	if err != nil {
		return err
	}
	return c.page(v, "many", j.Label, &jobPage{job: j, State: j.State(), Left: j.Untried()})
}

// drive stops a job, or goes on with it.
func (c manyPages) drive(v *visit) error {
	j, err := c.jobs.find(v.r.PathValue("id"))
	if err != nil {
		return err
	}
	if v.r.PostForm.Has("stop") {
		j.halt()
	} else {
		_, most, err := failures(v)
		if err == nil { // the orders name the operator that goes on with them
			err = c.begin(v.r.Context(), j, false, func() { j.cause.By, j.max = v.login.By(), most })
		}
		if err != nil {
			return err
		}
	}
	http.Redirect(v.w, v.r, "/jobs/"+j.ID, http.StatusSeeOther)
	return nil
}
