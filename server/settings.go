package server

import (
	"errors"
	"fmt"
	"strings"

	"muster/server/link"
)

// A Source says where a setting comes from.
type Source string

// The sources, the strongest first.
const (
	SourceFlag          Source = "command line"
	SourceConfiguration Source = "configuration"
	SourceToken         Source = "token"
	SourceCompiledIn    Source = "compiled in"
	SourceDefault       Source = "default"
)

// A Setting is part of how this build provisions this machine, and where it comes from.
type Setting struct {
	Name   string `json:"name"` // as in Choria's `buildinfo`
	Value  any    `json:"value"`
	Source Source `json:"source"`
}

// Settings are what decides how this build provisions this machine. Its JSON
// form is what `buildinfo --json` prints as `provisioning`.
type Settings struct {
	List []Setting `json:"settings"` // in Choria's order

	// Problem says why there is no token, or none that can be used. Empty if
	// there is.
	Problem string `json:"problem,omitempty"`

	// Unread is why nothing could be taken from a token: it wraps [ErrMissing]
	// or [ErrUnusable]. Nil if one was read, even one that is of no use here.
	Unread error `json:"-"`
}

// ReadSettings reads what is compiled in and the token and server.conf that cfg
// leads to. It creates nothing. The error is about cfg alone; a missing or
// useless token is a Problem.
func ReadSettings(cfg Config) (*Settings, error) {
	cfg, build, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	set := &Settings{}
	paths := (&state{cfg: cfg, build: build}).tokenFiles()
	t, err := readToken(paths, build)
	if err == nil {
		err = t.usable()
	} else {
		if errors.Is(err, ErrMissing) {
			err = fmt.Errorf("no token: %w", err)
		}
		set.Unread = link.OneLine(err)
		t = &token{
			file:      paths[0],
			urls:      build.brokers,
			srv:       build.srvDomain,
			secure:    build.secure,
			byDefault: build.byDefault,
		}
	}
	if err != nil {
		set.Problem = link.OneLine(err).Error()
	}
	set.list(cfg, build, t)
	return set, nil
}

// list fills in the settings, which are those of t.
func (set *Settings) list(cfg Config, build compiledIn, t *token) {
	from := func(compiledIn bool) Source {
		switch {
		case compiledIn:
			return SourceCompiledIn
		case set.Unread == nil:
			return SourceToken
		}
		return SourceDefault
	}
	byDefault := Setting{"Provisioning Default", t.byDefault, from(build.byDefault)}
	_, says, _ := readConf(cfg.ConfFile) // what it says about provisioning counts even if the rest cannot be used
	if says.Yes != says.No {
		byDefault.Value, byDefault.Source = says.Yes, SourceConfiguration
	}
	secret := "not set" // which guards the node's remote verbs, and is shown nowhere
	if t.claims.Token != "" {
		secret = "set"
	}
	file := Setting{"Provisioning JWT file", t.file, SourceDefault}
	switch {
	case cfg.TokenFile != "":
		file.Source = SourceFlag
	case build.tokenFile != "":
		file.Source = SourceCompiledIn
	}
	set.List = []Setting{
		byDefault,
		{"Provisioning TLS", t.secure, from(build.secure)},
		{"Provisioning Target Resolver", "Default", SourceDefault},
		{"Default Provisioning Agent", true, SourceDefault},
		{"Provisioning Token", secret, from(false)},
	}
	brokers := from(len(t.claims.URLs()) == 0 && t.claims.SRVDomain == "")
	if t.srv != "" {
		set.List = append(set.List, Setting{"Provisioning SRV Domain", t.srv, brokers})
	}
	if len(t.urls) > 0 {
		set.List = append(set.List, Setting{"Provisioning Brokers", strings.Join(t.urls, ", "), brokers})
	}
	set.List = append(set.List, file)
}
