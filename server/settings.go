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

// A Setting is a value and where it comes from.
type Setting[T any] struct {
	Value  T      `json:"value"`
	Source Source `json:"source"`
}

// Settings are what decides how this build provisions this machine. Its JSON
// form is what `buildinfo --json` prints as `provisioning`.
type Settings struct {
	// Default is whether the node enrolls when it has no usable configuration.
	Default Setting[bool] `json:"default"`

	// TLS is whether it insists on TLS while it does.
	TLS Setting[bool] `json:"tls"`

	// TokenFile is the token that was found, or where it is looked for first.
	TokenFile Setting[string] `json:"token_file"`

	// TokenSet is whether the token carries the secret that guards the node's
	// remote verbs. The secret itself is shown nowhere.
	TokenSet bool `json:"token_set"`

	// Brokers or SRVDomain is where it enrolls. Both are empty without a token
	// and nothing compiled in.
	Brokers   Setting[[]string] `json:"brokers"`
	SRVDomain Setting[string]   `json:"srv_domain"`

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
	tokens := (&state{cfg: cfg, build: build}).tokenFiles()
	set := &Settings{TokenFile: Setting[string]{tokens[0], SourceDefault}}
	switch {
	case cfg.TokenFile != "":
		set.TokenFile.Source = SourceFlag
	case build.tokenFile != "":
		set.TokenFile.Source = SourceCompiledIn
	}
	set.Default = Setting[bool]{build.byDefault, compiledOr(build.byDefault)}
	set.TLS = Setting[bool]{build.secure, compiledOr(build.secure)}
	set.Brokers = Setting[[]string]{build.brokers, compiledOr(len(build.brokers) > 0)}
	set.SRVDomain = Setting[string]{build.srvDomain, compiledOr(build.srvDomain != "")}

	switch t, err := readToken(tokens, build); {
	case err == nil:
		set.fill(t, build)
		if err := t.usable(); err != nil {
			set.Problem = err.Error()
		}
	case errors.Is(err, ErrMissing):
		set.Unread = fmt.Errorf("no token: %w", err)
		set.Problem = set.Unread.Error()
	default:
		set.Unread = link.OneLine(err)
		set.Problem = set.Unread.Error()
	}
	_, says, _ := readConf(cfg.ConfFile) // what it says about provisioning counts even if the rest cannot be used
	if says.Yes != says.No {
		set.Default = Setting[bool]{says.Yes, SourceConfiguration}
	}
	return set, nil
}

// fill takes over what the token says.
func (set *Settings) fill(t *token, build compiledIn) {
	set.TokenFile.Value = t.file
	set.TokenSet = t.claims.Token != ""
	if !build.byDefault {
		set.Default = Setting[bool]{t.byDefault, SourceToken}
	}
	if !build.secure {
		set.TLS = Setting[bool]{t.secure, SourceToken}
	}
	if len(t.claims.URLs()) > 0 || t.claims.SRVDomain != "" {
		set.Brokers = Setting[[]string]{t.claims.URLs(), SourceToken}
		set.SRVDomain = Setting[string]{t.claims.SRVDomain, SourceToken}
	}
}

func compiledOr(set bool) Source {
	if set {
		return SourceCompiledIn
	}
	return SourceDefault
}

// Lines returns the settings as label and value, in the order and with the
// labels of Choria's `buildinfo`.
func (set *Settings) Lines() [][2]string {
	with := func(value any, from Source) string { return fmt.Sprintf("%v (%s)", value, from) }
	secret := "not set"
	if set.TokenSet {
		secret = with("set", SourceToken)
	}
	lines := [][2]string{
		{"Provisioning Default", with(set.Default.Value, set.Default.Source)},
		{"Provisioning TLS", with(set.TLS.Value, set.TLS.Source)},
		{"Provisioning Target Resolver", with("Default", SourceDefault)},
		{"Default Provisioning Agent", with(true, SourceDefault)},
		{"Provisioning Token", secret},
	}
	if set.SRVDomain.Value != "" {
		lines = append(lines, [2]string{"Provisioning SRV Domain", with(set.SRVDomain.Value, set.SRVDomain.Source)})
	}
	if len(set.Brokers.Value) > 0 {
		lines = append(lines, [2]string{"Provisioning Brokers", with(strings.Join(set.Brokers.Value, ", "),
			set.Brokers.Source)})
	}
	lines = append(lines, [2]string{"Provisioning JWT file", with(set.TokenFile.Value, set.TokenFile.Source)})
	if set.Problem != "" {
		lines = append(lines, [2]string{"Problem", set.Problem})
	}
	return lines
}
