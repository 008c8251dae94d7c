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

	"muster/internal/paging"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/fleet"
	"muster/provisioner/login"
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
	errNoJob   = &mistake{http.StatusNotFound, errors.New("this provisioner does not have this job: another one has " +
		"it, or it is too old, or you have chosen anew. Orders that were carried out stay so; filter the list again " +
		"for the rest")}
	errNoneApply   = &mistake{http.StatusConflict, errors.New("the action applies to none of the chosen nodes")}
	errEnds        = &mistake{http.StatusServiceUnavailable, errors.New("this provisioner ends: nothing was done")}
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

	Reason       trust.Cause // By is the operator that has begun it last
	Began, Ended time.Time   // zero: has not begun, or runs
	Result       operate.Outcome

	sites trust.Sites // of By
	left  []target    // when it began last, or ended
	stop  context.CancelFunc
}

func (j *job) choose(node wire.Identity, do func(context.Context, trust.Cause) error) {
	j.left = append(j.left, target{node, do})
	j.Chosen++
}

// Names are the first ones that it is for.
func (j *job) Names() (names []wire.Identity) {
	for _, t := range j.left[:min(firstNames, len(j.left))] {
		names = append(names, t.node)
	}
	return names
}

// Things are what it is for.
func (j *job) Things() string {
	if strings.HasPrefix(j.Back, "/approvals?") {
		return "key"
	}
	return "node"
}

// Tried is the number of nodes that need no other try.
func (j *job) Tried() int { return j.Result.Done + len(j.Result.Failed) + len(j.Result.Alone) }

// Untried is the number of the other ones.
func (j *job) Untried() int { return j.Chosen - j.Tried() }

// jobs are the newest ones of this process. A restart loses them, but no order that was carried out.
type jobs struct {
	begun chan func()
	tried atomic.Uint64 // nodes

	mu  sync.Mutex
	all []*job // guarded by mu, with what they have: newest first
}

func (s *jobs) run(ctx context.Context) error {
	var g sync.WaitGroup
	defer g.Wait()
	for {
		select {
		case try := <-s.begun:
			g.Go(try)
		case <-ctx.Done():
			return nil
		}
	}
}

func (s *jobs) change(id string, do func(*job) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.IndexFunc(s.all, func(j *job) bool { return j.ID == id }); i >= 0 {
		return do(s.all[i])
	}
	return errNoJob
}

// sees reports whether a job is for the operator: one with a limit to sites sees their own, chosen with this limit.
func (j *job) sees(by *login.Login) bool {
	return by.Sites == nil || j.By == by.By() && slices.Equal(j.sites, by.Sites)
}

func (s *jobs) find(id string, by *login.Login) (*job, error) {
	var now job
	err := s.change(id, func(j *job) error { now = *j; return nil })
	if err == nil && !now.sees(by) {
		err = errNoJob
	}
	return &now, err
}

// list returns the jobs that have begun, as they are now.
func (s *jobs) list(by *login.Login) (begun []job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range s.all {
		if !j.Began.IsZero() && j.sees(by) {
			begun = append(begun, *j)
		}
	}
	return begun
}

// add keeps a job, instead of the one that its operator has chosen before and not confirmed, and of the oldest.
func (s *jobs) add(j job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = slices.DeleteFunc(s.all, func(o *job) bool { return o.By == j.By && o.Began.IsZero() })
	for i := len(s.all) - 1; i >= 0 && len(s.all) >= maxJobs; i-- {
		if !s.all[i].Ended.IsZero() {
			s.all = slices.Delete(s.all, i, i+1)
		}
	}
	s.all = slices.Insert(s.all, 0, &j)
}

// begin has a job tried that was chosen, or stopped before its end. A job that has begun is not begun again.
func (c *Console) begin(id string, first bool, reason trust.Cause, most int) error {
	return c.jobs.change(id, func(j *job) error {
		switch begun := !j.Began.IsZero(); {
		case begun && first:
			return nil
		case begun && j.Ended.IsZero(), !begun && !first, len(j.left) == 0:
			return errNothingLeft
		}
		ctx, stop := context.WithCancel(c.stopping)
		j.Reason, j.Began, j.Ended, j.stop = reason, cmp.Or(j.Began, c.cfg.Now()), time.Time{}, stop
		now := *j
		select {
		case c.jobs.begun <- func() { defer stop(); c.try(ctx, now, most) }:
			return nil
		case <-c.stopping.Done():
			return errEnds
		}
	})
}

// try tries the nodes that are left until ctx is done. Orders under way are finished.
func (c *Console) try(ctx context.Context, j job, most int) {
	finishing, end := provisioner.Finishing(c.stopping)
	defer end()
	set := func(change func(*job)) {
		c.jobs.tried.Add(1)
		_ = c.jobs.change(j.ID, func(j *job) error { change(j); return nil }) // jobs that run are kept
	}
	many := operate.Batch{
		Concurrency: jobConcurrency,
		MaxFailures: most,
		Alone:       func(err error) bool { return errors.Is(err, provisioner.ErrChanged) },
		Over:        func(err error) bool { return errors.Is(err, errStopped) },
		Tried:       func(o *operate.Outcome) { set(func(j *job) { j.Result = *o }) },
	}
	nodes, tried := make([]wire.Identity, len(j.left)), make([]bool, len(j.left))
	for i := range j.left {
		nodes[i] = j.left[i].node
	}
	//nolint:contextcheck // orders under way are finished
	many.Run(finishing, &j.Result, nodes, func(finishing context.Context, i int) error {
		if ctx.Err() != nil {
			return errStopped
		}
		tried[i] = true
		return j.left[i].do(finishing, j.Reason)
	})
	var left []target
	for i := range j.left {
		if !tried[i] {
			left = append(left, j.left[i])
		}
	}
	set(func(now *job) { now.Result, now.Ended, now.left = j.Result, c.cfg.Now(), left })
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
func (c manyPages) order(v *visit, o *order, choose func(*visit, *action) (*job, error)) (err error) {
	if o.Max, err = failures(v); err != nil {
		return err
	}
	var j *job
	if v.r.PostForm.Has("job") {
		if j, err = c.jobs.find(v.r.PostForm.Get("job"), v.login); err == nil && j.action != o.action {
			err = errNoPage
		}
	} else if j, err = choose(v, o.action); err == nil {
		if j.Chosen == 0 {
			return errNoneApply
		}
		c.jobs.add(*j)
	}
	if err != nil {
		return err
	}
	o.Many, o.Back, o.then = j, j.Back, "/jobs/"+j.ID
	o.Fields = url.Values{"job": {j.ID}, "verdict": {o.Name}}
	o.do = func(_ context.Context, cause trust.Cause) error {
		return c.begin(j.ID, true, cause, o.Max) //nolint:contextcheck // the job outlives the request
	}
	return nil
}

func failures(v *visit) (int, error) {
	text := cmp.Or(v.r.PostForm.Get("failures"), "10")
	most, err := strconv.Atoi(text)
	if err != nil || most < 0 {
		return 0, badRequest(fmt.Errorf("failures: %.40q, want a number of nodes", text))
	}
	return most, nil
}

func newJob(v *visit, a *action, back string) *job {
	return &job{action: a, ID: wire.NewID(), Back: back, By: v.login.By(), sites: v.login.Sites,
		States: make(map[provisioner.State]int)}
}

func (c manyPages) choose(v *visit, a *action) (*job, error) {
	j := newJob(v, a, "/nodes?"+v.r.PostForm.Get("query"))
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
		if n, known := c.cfg.Fleet.Find(id); known && v.login.Sites.Has(n.Site) {
			add(&n, shown)
		}
	}
	return j, nil
}

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

func (c manyPages) recent(v *visit) error {
	return c.page(v, "jobs", "Jobs", struct{ All []job }{c.jobs.list(v.login)})
}

func (c manyPages) progress(v *visit) error {
	j, err := c.jobs.find(v.r.PathValue("id"), v.login)
	if err != nil {
		return err
	}
	return c.page(v, "many", j.Label, j)
}

func (c manyPages) drive(v *visit) error {
	j, err := c.jobs.find(v.r.PathValue("id"), v.login)
	if err != nil {
		return err
	}
	if v.r.PostForm.Has("stop") {
		if j.stop != nil {
			j.stop()
		}
	} else {
		most, err := failures(v)
		if err == nil { // the orders name the operator that goes on with them
			err = c.begin(j.ID, false, trust.Cause{By: v.login.By(), Why: j.Reason.Why}, most)
		}
		if err != nil {
			return err
		}
	}
	http.Redirect(v.w, v.r, "/jobs/"+j.ID, http.StatusSeeOther)
	return nil
}
