package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"muster/internal/cli"
	"muster/internal/demo"
)

// staying is "muster demo --stay".
func (v *demoVerb) staying(ctx context.Context, dir string) error {
	dir, err := filepath.Abs(dir) // what is printed is good in another terminal
	if err != nil {
		return err
	}
	// That nobody reads what is printed is no reason to end.
	err = demo.Stay(ctx, demo.StayConfig{Nodes: v.nodes, Dir: dir, Version: cli.Version(), Progress: progress, Ready: func(p *demo.Place) { _ = v.show(os.Stdout, p) }})
	if err == nil && v.keep != "" {
		cli.Say(os.Stderr, program, "the files are in %s", quoted(dir))
	}
	return err
}

// show prints an installation that stays.
func (v *demoVerb) show(w io.Writer, p *demo.Place) error {
	if v.json {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(p)
	}
	var parts, operators cli.Table
	parts.Add("NODES", "WHAT THEY ARE", "SUCH AS")
	for _, part := range p.Parts {
		parts.Add(fmt.Sprint(part.Nodes), part.What, part.Example)
	}
	operators.Add("OPERATOR", "ROLE", "CERTIFICATE", "TOKEN")
	for _, o := range p.Operators {
		operators.Add(o.Name, string(o.Role), filepath.Base(o.Credential), filepath.Base(o.TokenFile))
	}
	for _, t := range []*cli.Table{&parts, &operators} {
		if _, err := t.WriteTo(w); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
	}
	o := p.Operators[0]
	_, err := fmt.Fprintf(w, toTry, filepath.Dir(o.Credential), p.URL, o.TokenFile, p.URL, o.Credential,
		example(p, "waiting"), example(p, "members"), example(p, "denied"), likeIt(example(p, "members")))
	return err
}

// toTry is what to do with it.
const toTry = `Their files are in %s.

In a browser, which does not know the demo's authority: %s
Sign in with what this prints: cat %s

In another terminal:

  export MUSTER_URL=%s MUSTER_CREDENTIAL=%s
  muster status
  muster node list --site ams1
  muster node pending
  muster node approve %s --why 'rack 4'
  muster node history %s
  muster node explain %s
  muster node reprovision --match '%s' --why 'new configuration'
  muster token list
  muster events --follow

Ctrl-C ends it.
`

// likeIt returns the pattern of the machines that are called like one, but for a number: a
// small fleet has not every kind.
func likeIt(name string) string {
	host, domain, _ := strings.Cut(name, ".")
	return strings.TrimRight(host, "0123456789") + "*." + domain
}

// example returns the name of a node of a part of the fleet.
func example(p *demo.Place, part string) string {
	for _, have := range p.Parts {
		if have.Name == part {
			return have.Example
		}
	}
	return ""
}
