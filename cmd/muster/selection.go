package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/fleet"
	"muster/provisioner/httpapi"
)

// selection is which machines a verb is about: those named, those of a file, or
// those of the fleet that a filter fits.
type selection struct {
	names  []string
	from   string
	all    bool
	filter nodeFilter

	// unheard is the shortest span of --unseen; 0: any.
	unheard time.Duration
}

func (s *selection) add(c *kingpin.CmdClause) {
	c.Arg("nodes", "Their names.").StringsVar(&s.names)
	c.Flag("from", "File with names, one a line; - is standard input.").PlaceHolder("FILE").StringVar(&s.from)
	c.Flag("all", "Every machine that the verb is for, or of them those that fit the flags below.").BoolVar(&s.all)
	s.filter.add(c)
}

// filtered reports whether the machines are chosen from the fleet.
func (s *selection) filtered() bool { return s.all || !s.filter.empty() }

// given reports whether any machine is chosen, in whatever way.
func (s *selection) given() bool { return len(s.names) > 0 || s.from != "" || s.filtered() }

// check reports all that is wrong with the choice.
func (s *selection) check() error {
	ways := 0
	for _, way := range []bool{len(s.names) > 0, s.from != "", s.filtered()} {
		if way {
			ways++
		}
	}
	var errs []error
	switch {
	case ways == 0:
		errs = append(errs, errors.New("name machines, or a file of names with --from, or choose them with --all, --state, --site, --prefix, --match, --fact, --unseen and the like"))
	case ways > 1:
		errs = append(errs, errors.New("names, --from, and --all or a filter: only one of them can be"))
	}
	for _, name := range s.names {
		_, err := wire.ParseIdentity(name)
		errs = append(errs, err)
	}
	filter, err := s.filter.parse(time.Now())
	err = errors.Join(err, checkQuery(&fleet.Query{Filter: filter}))
	if before := filter.SeenBefore; err == nil && s.unheard > 0 && !before.IsZero() && time.Since(before) < s.unheard {
		errs = append(errs, fmt.Errorf("--unseen: %s is less than %s ago: machines that run say so every half hour only, and would fit; want 1h or more (m is minutes, M months)", instant(before), cli.Span(s.unheard)))
	}
	return errors.Join(append(errs, err)...)
}

// A choice is the machines that a verb will touch: fixed from then on, whatever
// comes or goes.
type choice struct {
	targets []target
	states  map[string]int                     // how many there are of each; nil if that is not known
	seen    map[wire.Identity]provisioner.Seen // as listed; nil if machines were named
}

// choose returns the machines that are meant, by name. Of those that a filter
// fits, the ones in a state that the verb is not for are left out, unless the
// filter names states.
func (s *selection) choose(ctx context.Context, o *operator, states []provisioner.State) (*choice, error) {
	if !s.filtered() {
		ids, err := identitiesOf(ctx, s.names, s.from)
		if err != nil {
			return nil, err
		}
		c := &choice{}
		for _, id := range ids {
			c.targets = append(c.targets, target{Node: id})
		}
		return c, nil
	}
	filter, err := s.filter.parse(time.Now())
	if err != nil {
		return nil, err
	}
	if len(filter.States) == 0 {
		filter.States = states
	}
	c := &choice{states: map[string]int{}, seen: map[wire.Identity]provisioner.Seen{}}
	for q := (fleet.Query{Filter: filter, Limit: fleet.MaxLimit}); ; {
		var p fleet.Page
		if err := o.ask(ctx, http.MethodGet, "/v1/nodes?"+httpapi.NodeQuery(q).Encode(), nil, &p); err != nil {
			return nil, err
		}
		if q.Cursor == "" {
			o.sayUnknown(&p)
		}
		for i := range p.Nodes {
			c.targets = append(c.targets, target{Node: p.Nodes[i].Identity})
			c.states[string(p.Nodes[i].State)]++
			c.seen[p.Nodes[i].Identity] = provisioner.Seen{Revision: p.Nodes[i].Revision, OwnedSince: p.Nodes[i].OwnedSince}
		}
		if q.Cursor = p.Next; q.Cursor == "" {
			return c, nil
		}
	}
}

// sayUnknown says of whom nobody knows whether they are among those that are asked for.
func (o *operator) sayUnknown(p *fleet.Page) {
	if p.Unknown > 0 {
		o.say("left out: %s not heard of since %s, when the store began to keep that; nobody knows whether they were before",
			counted(p.Unknown, "machine", "machines"), instant(p.HeardSince))
	}
}

// text says how many machines there are, by state, and the first names.
func (c *choice) text(left []target) string {
	const shown = 10
	list := make([]string, 0, shown+1)
	for _, t := range left[:min(shown, len(left))] {
		list = append(list, string(t.Node))
	}
	if more := len(left) - shown; more > 0 {
		list = append(list, fmt.Sprintf("and %d more", more))
	}
	states := ""
	if len(c.states) > 0 {
		var parts []string
		for state, n := range c.states {
			parts = append(parts, fmt.Sprintf("%d %s", n, state))
		}
		slices.Sort(parts)
		states = " (" + strings.Join(parts, ", ") + ")"
	}
	return fmt.Sprintf("%s%s: %s", counted(len(left), "machine", "machines"), states, strings.Join(list, ", "))
}

// identitiesOf returns the machines that are named, and those of a file, each once
// and in order. The error lists the names that are none, those of a file with its lines, the first
// of them: a file of another kind has nothing else.
func identitiesOf(ctx context.Context, names []string, from string) ([]wire.Identity, error) {
	var ids []wire.Identity
	var errs []error
	seen := map[wire.Identity]bool{}
	add := func(name, where string) {
		id, err := wire.ParseIdentity(name)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s%w", where, err))
		} else if !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	for _, name := range names {
		add(name, "")
	}
	if from != "" {
		file := nameOf(from)
		b, err := readFileOrInput(ctx, from)
		if err != nil {
			return nil, err
		}
		if bytes.Contains(b, []byte("-----BEGIN ")) { // perhaps a private key, of which no line is to be shown
			return nil, fmt.Errorf("%s: PEM, want names of machines, one a line", file)
		}
		n := 0
		for line := range strings.Lines(string(b)) {
			n++
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
				add(line, fmt.Sprintf("%s: line %d: ", file, n))
			}
		}
		if len(ids)+len(errs) == 0 {
			return nil, fmt.Errorf("%s has no names", file)
		}
	}
	if more := len(errs) - maxBadNames; more > 0 {
		errs = append(errs[:maxBadNames], fmt.Errorf("and %d more: is it the right file?", more))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return ids, nil
}

// maxBadNames is how many names that are none are said, chosen.
const maxBadNames = 10

// nameOf is what a file of machines is called, also if it is standard input.
func nameOf(path string) string {
	if path == "-" {
		return "standard input"
	}
	return path
}

// maxNamesBytes bounds a file of machines: two million of the longest names that
// anybody has. What has no end, like a device, is refused.
const maxNamesBytes = 128 << 20

// readFileOrInput reads a file of machines, or standard input for "-".
func readFileOrInput(ctx context.Context, path string) ([]byte, error) {
	if path == "-" {
		return readNames(os.Stdin, nameOf(path))
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	return readNames(f, path)
}

func readNamesFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	return readNames(f, path)
}

func readNames(r io.Reader, name string) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxNamesBytes+1))
	if err == nil && len(b) > maxNamesBytes {
		err = fmt.Errorf("%s: more than %d bytes, the limit: is it the right file?", name, maxNamesBytes)
	}
	return b, err
}
