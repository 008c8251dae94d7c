package policies

import (
	"context"
	"errors"
	"maps"
)

// A Maker is what makes a node's configuration.
type Maker string

// The makers of a configuration.
const (
	ByPolicy   Maker = "policy"
	ByTemplate Maker = "template"
	ByHelper   Maker = "helper"
	ByNothing  Maker = "nothing" // the node is refused
)

// A Fallback configures the nodes that a policy gives no configuration, in a
// [Replay]. The zero Fallback is an installation that has neither a template nor a
// helper.
type Fallback struct {
	// Render fills a template from what the policy saw, which is all that a template
	// sees. It is safe for concurrent use. The error is why the node is refused. Nil
	// if there is no template.
	Render func(*Input) (map[string]string, error)

	// Helper says that a helper configures. A replay never runs it: a helper may do
	// anything, such as to enter the node into an inventory, and what it is told
	// besides, the certificate request, is not recorded.
	Helper bool
}

// errNoFallback is why a node is refused of which nothing makes a configuration.
var errNoFallback = errors.New("the policy gives no configuration, and neither a template nor a helper is set")

// configured is a configuration and where it comes from.
type configured struct {
	by     Maker             // "" if that is not known
	values map[string]string // nil if they are not known
	err    error             // why there is none: the node is refused
}

// of returns what the fallback makes of an input; a nil one is not known.
func (f *Fallback) of(in *Input) configured {
	switch {
	case f == nil:
		return configured{}
	case f.Render != nil:
		values, err := f.Render(in)
		return configured{by: ByTemplate, values: values, err: err}
	case f.Helper:
		return configured{by: ByHelper}
	}
	return configured{by: ByNothing, err: errNoFallback}
}

// A rendering says what a comparison took.
type rendering struct {
	rendered bool // a template was filled
	helped   bool // a helper would have to be run
}

// configure says in n how the configuration differs from what was recorded, where the
// policy that is tried lets the node in. A node that a template cannot be filled
// for is not let in, whatever the policy says: it flips as one does whose policy fails.
//
// Where the same template or helper makes both, they are the same: it does not see
// what was decided.
func (r *Replay) configure(ctx context.Context, n *NodeReplay, recorded *Recording, d *Decision) rendering {
	before, after := recorded.Configuration != "", d.Configuration != nil // the policy's own
	if before && after {
		if n.From == VerdictAllow && ConfigurationDigest(d.Configuration) != recorded.Configuration {
			n.Configuration = true
			if was := r.before(ctx, recorded); was != nil {
				n.Keys = keyChanges(was, d.Configuration)
			}
		}
		return rendering{}
	}
	if !before && !after && n.From == VerdictAllow && r.cfg.Was == r.cfg.Is {
		return rendering{helped: r.cfg.Is != nil && r.cfg.Is.Helper}
	}
	is := configured{by: ByPolicy, values: d.Configuration}
	if !after {
		is = r.cfg.Is.of(recorded.Input)
	}
	was := is
	switch {
	case n.From != VerdictAllow: // it got none that could differ
		was.err = nil
	case before:
		was = configured{by: ByPolicy, values: r.before(ctx, recorded)}
	default:
		was = r.cfg.Was.of(recorded.Input)
	}
	n.differ(was, is)
	took := rendering{was.by == ByTemplate || is.by == ByTemplate, was.by == ByHelper || is.by == ByHelper}
	n.Partial = took.rendered && recorded.Redacted
	return took
}

// differ notes how two configurations differ.
func (n *NodeReplay) differ(was, is configured) {
	if was.err != nil {
		n.From, n.Was = VerdictFailed, []string{shapes("configuration: " + was.err.Error())}
	}
	if is.err != nil {
		n.To, n.Reasons = VerdictFailed, []string{shapes("configuration: " + is.err.Error())}
	}
	if was.err != nil || is.err != nil {
		return
	}
	if was.values != nil && is.values != nil {
		if n.Configuration = !maps.Equal(was.values, is.values); n.Configuration {
			n.Keys = keyChanges(was.values, is.values)
		}
	} else {
		n.Configuration = was.by != is.by
	}
	if n.Configuration {
		n.WasBy, n.IsBy = was.by, is.by
	}
}

// before returns what the live policy configured, nil if it is not the one that
// decided, or something of the input was left out.
func (r *Replay) before(ctx context.Context, recorded *Recording) map[string]string {
	if r.cfg.Live == nil || r.cfg.Live.Digest() != recorded.Policy {
		return nil
	}
	d, err := r.cfg.Live.Decide(ctx, recorded.Input)
	if err != nil || ConfigurationDigest(d.Configuration) != recorded.Configuration {
		return nil
	}
	return d.Configuration
}
